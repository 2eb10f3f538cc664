"""Checks the vocabulary, and the card of each prepared engine against this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from trt_responses.doctor.check import Check, State
from trt_responses.errors import StartupError
from trt_responses.prepare.files import DIALECT
from trt_responses.prepare.machine import ServingMachine
from trt_responses.prepare.shelf import shelf
from trt_responses.prepare.shelf.card import DialectFacts, read_card
from trt_responses.prepare.shelf.shelf import Verdict
from trt_responses.tokens import vocabulary


def vocabulary_check(load: Callable[[], object] = vocabulary.load) -> Check:
    """Whether the vocabulary can be loaded."""
    try:
        load()
    except StartupError as error:
        return Check("vocabulary", "fault", "cannot be loaded", str(error))
    return Check("vocabulary", "ok", f"o200k, SHA-256 {vocabulary.RANKS_SHA256[:12]}…")


def engine_checks(engines_dir: Path, machine: ServingMachine) -> Iterator[Check]:
    """A check for each prepared engine: its card against this machine."""
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
    """Whether the template of each model other than gpt-oss matches its card."""
    for entry in shelf.entries(engines_dir):
        if entry.status not in ("built", "verified"):
            continue
        directory = shelf.find(engines_dir, entry.label)
        recorded = read_card(directory).dialect
        if recorded is not None:
            yield _dialect(f"template {entry.label}", directory / DIALECT, recorded, probe)


def _dialect(
    name: str, path: Path, recorded: DialectFacts, probe: Callable[[Path, str], DialectFacts]
) -> Check:
    try:
        probed = probe(path, recorded.family)
    except StartupError as error:
        return Check(name, "fault", recorded.family, str(error))
    differences = [
        f"{key}: card {recorded.probes.get(key)}, template {probed.probes.get(key)}"
        for key in sorted({*recorded.probes, *probed.probes})
        if recorded.probes.get(key) != probed.probes.get(key)
    ]
    if recorded.stop_ids != probed.stop_ids:
        differences.append(f"stop ids: card {recorded.stop_ids}, template {probed.stop_ids}")
    if differences:
        return Check(
            name, "fault", f"{recorded.family}: {'; '.join(differences)}", "prepare it again"
        )
    return Check(name, "ok", f"{recorded.family}: matches its card")


def _engine(verdict: Verdict) -> Check:
    """The check of one engine. A planned engine or an unfinished build is not a fault."""
    entry, difference = verdict
    name = f"engine {entry.label}"
    what = ", ".join(filter(None, (entry.kind, entry.weight_type, entry.status)))
    if difference is None:
        ignored = f"; ignores {', '.join(entry.ignores)}" if entry.ignores else ""
        return Check(name, "ok", f"{what}: matches its card{ignored}")
    state: State = "note" if entry.status in ("planned", "unfinished") else "fault"
    return Check(name, state, f"{what}: {difference}")
