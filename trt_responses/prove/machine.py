"""The steps of the machine: its doctor with the table of known-bad releases, and the build."""

from __future__ import annotations

import subprocess
import sys

from trt_responses import doctor
from trt_responses.prepare.hardware import this_hardware
from trt_responses.prepare.known_bad import known_bad
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.shelf import shelf
from trt_responses.prove.bench import Bench
from trt_responses.prove.claims import Failed, Figures, check
from trt_responses.prove.server import environment

OUTPUT_LINES = 3


def examine(bench: Bench) -> Figures:
    """The doctor's findings; a fault fails, and so does a release that answers wrongly."""
    found = doctor.checks(bench.settings)
    python = bench.settings.trtllm_python
    hardware = this_hardware(bench.settings.engines_dir, python)
    bad = known_bad(this_machine(python).libraries, len(hardware.gpus))
    figures: Figures = {
        "gpus": [f"{gpu.name}, driver {gpu.driver}" for gpu in hardware.gpus] or hardware.no_gpu,
        "findings": {state: sum(c.state == state for c in found) for state in ("ok", "note")},
        "known bad releases": [row.sentence() for row in bad],
    }
    faults = [(f"{c.name}: {c.found}", c.state == "fault") for c in found]
    check([*faults, *((row.sentence(), row.effect == "answers") for row in bad)], figures)
    return figures


def build(bench: Bench) -> Figures:
    """Build the checkpoint as a user would, or compare an engine with its card."""
    wish, engines_dir = bench.wish, bench.settings.engines_dir
    if wish.checkpoint is not None:
        kind = ["--kind", wish.kind]
        _run("build", "--checkpoint", str(wish.checkpoint), "--name", wish.engine, *kind, at=bench)
    elif wish.engine == shelf.DEMO:
        _run("build", at=bench)
    machine = this_machine(bench.settings.trtllm_python)
    for verdict in shelf.verify(engines_dir, wish.engine, machine):
        check([(f"{verdict.entry.label}: {verdict.difference}", verdict.difference)])
    bench.prepared()
    assert bench.card is not None
    card = bench.card
    figures: Figures = {
        "engine": card.label,
        "kind": card.kind,
        "weights": card.weight_type,
        "status": card.status,
        "seconds by phase": {name: round(value, 1) for name, value in card.seconds.items()},
    }
    check([(f"the card says {card.status}", card.status != "verified")], figures)
    if wish.lora is not None:
        _run("adapter", "add", card.name, ADAPTER, str(wish.lora), at=bench, scratch=True)
    return figures


ADAPTER = "proof"
"""The name of the adapter under proof."""


def _run(*arguments: str, at: Bench, scratch: bool = False) -> None:
    """Run `trt-responses engine …`. Raises a `Failed` with its last lines."""
    place = at.engines_dir if scratch else at.settings.engines_dir
    command = [sys.executable, "-m", "trt_responses", "engine", *arguments]
    done = subprocess.run(
        [*command, "--engines-dir", str(place)],
        env=environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = " ".join((done.stdout + done.stderr).strip().splitlines()[-OUTPUT_LINES:])
        raise Failed(f"engine {arguments[0]} ended with status {done.returncode}: {last}")
