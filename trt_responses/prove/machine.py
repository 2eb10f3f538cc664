"""The steps of the machine: its doctor with the table of known-bad releases, and the build."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trt_responses import doctor
from trt_responses.backends.settings import EngineSettings
from trt_responses.prepare.hardware import this_hardware
from trt_responses.prepare.known_bad import known_bad
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.shelf import shelf
from trt_responses.prove.bench import Bench
from trt_responses.prove.claims import Failed, Figures, check
from trt_responses.prove.server import environment

ADAPTER = "proof"
"""The name of the adapter under proof."""
OUTPUT_LINES = 3


def examine(bench: Bench) -> Figures:
    """The doctor's findings; a fault fails, and so does a release that answers wrongly."""
    elsewhere = {"engine": bench.wish.engine} if bench.wish.elsewhere else {}
    found = doctor.checks(bench.settings.model_copy(update={"port": 0, **elsewhere}))
    python = EngineSettings.of(bench.settings).trtllm_python
    hardware = this_hardware(bench.settings.engines_dir, python)
    bad = [*known_bad(this_machine(python).libraries, len(hardware.gpus))]
    figures: Figures = {
        "gpus": [f"{gpu.name}, driver {gpu.driver}" for gpu in hardware.gpus] or hardware.no_gpu,
        "findings": {state: sum(c.state == state for c in found) for state in ("ok", "note")},
        "known bad releases": [row.sentence() for row in bad],
    }
    faults = {f"{c.name}: {c.found}": c.state == "fault" for c in found}
    return check(faults | {row.sentence(): row.effect == "answers" for row in bad}, figures)


def build(bench: Bench) -> Figures:
    """Build the checkpoint as a user would, or compare an engine with its card."""
    wish, engines_dir = bench.wish, bench.settings.engines_dir
    if wish.checkpoint is not None:
        given = ("--checkpoint", str(wish.checkpoint), "--name", wish.engine, "--kind", wish.kind)
        _engine(engines_dir, "build", *given)
    elif wish.engine == shelf.DEMO:
        _engine(engines_dir, "build")
    machine = this_machine(EngineSettings.of(bench.settings).trtllm_python)
    verdicts = shelf.verify(engines_dir, wish.engine, machine)
    check({f"{v.entry.label}: {v.difference}": v.difference for v in verdicts})
    card = bench.prepared()
    if wish.lora is not None:
        _engine(bench.engines_dir, "adapter", "add", card.name, ADAPTER, str(wish.lora))
    seconds = {name: round(value, 1) for name, value in card.seconds.items()}
    figures: Figures = {"engine": card.label, "kind": card.kind, "weights": card.weight_type}
    figures |= {"status": card.status, "seconds by phase": seconds}
    # Plans are not started by their build.
    unproven = card.status != "verified" and card.kind != "tensorrt"
    return check({f"the card says {card.status}, not verified": unproven}, figures)


def _engine(engines_dir: Path, *arguments: str) -> None:
    """Run `trt-responses engine …`. Raises a `Failed` with its last lines."""
    command = [sys.executable, "-m", "trt_responses", "engine", *arguments]
    command += ["--engines-dir", str(engines_dir)]
    done = subprocess.run(command, env=environment({}), capture_output=True, text=True, check=False)
    if done.returncode:
        last = " ".join((done.stdout + done.stderr).strip().splitlines()[-OUTPUT_LINES:])
        raise Failed(f"engine {arguments[0]} ended with status {done.returncode}: {last}")
