"""The vocabulary, and the card of every prepared engine against this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.doctor.check import Check
from trt_responses.errors import StartupError
from trt_responses.prepare import shelf
from trt_responses.tokens import vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from trt_responses.doctor.check import State
    from trt_responses.prepare.machine import ServingMachine
    from trt_responses.prepare.shelf import Verdict


def vocabulary_check(load: Callable[[], object] = vocabulary.load) -> Check:
    try:
        load()
    except StartupError as error:
        return Check("vocabulary", "fault", "cannot be loaded", str(error))
    return Check("vocabulary", "ok", f"o200k, SHA-256 {vocabulary.RANKS_SHA256[:12]}…")


def engine_checks(engines_dir: Path, machine: ServingMachine) -> Iterator[Check]:
    verdicts = shelf.verify(engines_dir, None, machine)
    if not verdicts:
        yield Check(
            "engines",
            "note",
            f"none in {engines_dir}",
            "`make serve` prepares the demo; `make engine CHECKPOINT=…` prepares another",
        )
    for verdict in verdicts:
        yield _engine(verdict)


def _engine(verdict: Verdict) -> Check:
    """An engine that was only planned, or whose build was stopped, is no fault of this machine."""
    entry, difference = verdict
    name = f"engine {entry.name}/{entry.version}"
    what = ", ".join(filter(None, (entry.kind, entry.weight_type, entry.status)))
    if difference is None:
        return Check(name, "ok", f"{what}: as its card says")
    state: State = "note" if entry.status in ("planned", "unfinished") else "fault"
    return Check(name, state, f"{what}: {difference}")
