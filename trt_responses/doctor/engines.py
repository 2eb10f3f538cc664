"""The vocabulary, and the card of every prepared engine against this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.doctor.check import Check
from trt_responses.errors import StartupError
from trt_responses.prepare.files import DIALECT
from trt_responses.prepare.shelf import shelf
from trt_responses.prepare.shelf.card import read_card
from trt_responses.tokens import vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from trt_responses.doctor.check import State
    from trt_responses.prepare.machine import ServingMachine
    from trt_responses.prepare.shelf.card import DialectFacts
    from trt_responses.prepare.shelf.shelf import Verdict


def vocabulary_check(load: Callable[[], object] = vocabulary.load) -> Check:
    """Whether the vocabulary is there and whole."""
    try:
        load()
    except StartupError as error:
        return Check("vocabulary", "fault", "cannot be loaded", str(error))
    return Check("vocabulary", "ok", f"o200k, SHA-256 {vocabulary.RANKS_SHA256[:12]}…")


def engine_checks(engines_dir: Path, machine: ServingMachine) -> Iterator[Check]:
    """The card of each prepared engine, compared with this machine."""
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


def dialect_checks(
    engines_dir: Path, probe: Callable[[Path, str], DialectFacts]
) -> Iterator[Check]:
    """Whether the template of each model that does not speak Harmony does what its card says."""
    for entry in shelf.entries(engines_dir):
        if entry.status not in ("built", "verified"):
            continue
        directory = shelf.find(engines_dir, entry.label)
        told = read_card(directory).dialect
        if told is not None:
            yield _dialect(f"template {entry.label}", directory / DIALECT, told, probe)


def _dialect(
    name: str, path: Path, told: DialectFacts, probe: Callable[[Path, str], DialectFacts]
) -> Check:
    try:
        found = probe(path, told.family)
    except StartupError as error:
        return Check(name, "fault", told.family, str(error))
    differences = [
        f"{key}: the card says {told.probes.get(key)}, the template does {found.probes.get(key)}"
        for key in sorted({*told.probes, *found.probes})
        if told.probes.get(key) != found.probes.get(key)
    ]
    if told.stop_ids != found.stop_ids:
        differences.append(f"stop ids: the card says {told.stop_ids}, found {found.stop_ids}")
    if differences:
        return Check(name, "fault", f"{told.family}: {'; '.join(differences)}", "prepare it again")
    return Check(name, "ok", f"{told.family}: as its card says")


def _engine(verdict: Verdict) -> Check:
    """The check of one engine. One that was only planned, or whose build was stopped, is no fault
    of this machine."""
    entry, difference = verdict
    name = f"engine {entry.label}"
    what = ", ".join(filter(None, (entry.kind, entry.weight_type, entry.status)))
    if difference is None:
        nothing = f"; it does nothing with {', '.join(entry.ignores)}" if entry.ignores else ""
        return Check(name, "ok", f"{what}: as its card says{nothing}")
    state: State = "note" if entry.status in ("planned", "unfinished") else "fault"
    return Check(name, state, f"{what}: {difference}")
