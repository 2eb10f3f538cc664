"""`trt-responses prove`. Parses, calls, prints."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.backends.elsewhere import elsewhere_in
from trt_responses.cli.building import kind_for, to_stderr
from trt_responses.cli.commands import add_command, add_settings, settings_of
from trt_responses.errors import UsageError
from trt_responses.prepare.checkpoint.open import checkpoint_name
from trt_responses.prepare.files import GGUF
from trt_responses.prepare.hub import checkpoint_at
from trt_responses.prepare.shelf import shelf
from trt_responses.prepare.shelf.card import read_card
from trt_responses.prove.bench import Bench, Wish
from trt_responses.prove.report import document, write
from trt_responses.prove.run import announced, run
from trt_responses.prove.steps import STEPS, chosen

if TYPE_CHECKING:
    import argparse

    from trt_responses.cli.commands import Commands
    from trt_responses.settings import Settings

KINDS = ("llamacpp", "trtllm", "tensorrt", "onnx")


def add(commands: Commands, name: str, text: str) -> None:
    """Add the command `prove` and its options."""
    example = "prove /models/gpt-oss-20b --report proof"
    parser = add_command(commands, name, text, _prove, example=example)
    target = "Checkpoint to build, or engine: prepared, grpc://host:port/model or triton://…"
    parser.add_argument("target", metavar="CHECKPOINT|ENGINE", help=target)
    add_settings(parser, "engines_dir")
    parser.add_argument("--kind", choices=KINDS, help="Kind to build (default: as `engine build`)")
    parser.add_argument("--lora", type=Path, metavar="DIR", help="Adapter to prove (default: none)")
    reference = "Checkpoint for our own forward pass (default: the engine's own)"
    parser.add_argument("--reference", type=Path, metavar="DIR", help=reference)
    parser.add_argument("--quick", action="store_true", help="Fewer streams, tasks and tokens")
    only = parser.add_argument("--only", action="append", default=[], metavar="STEP")
    only.choices = [step.name for step in STEPS]
    only.help = "Single step by its name, repeatable (default: all)"
    report = parser.add_argument("--report", type=Path, default=Path("proof"), metavar="DIR")
    report.help = "Directory for proof.json and proof.html (default: proof)"


def _prove(options: argparse.Namespace) -> int:
    settings = settings_of(options, "engines_dir")
    wish = _wish(options, settings)
    steps, say = chosen(options.only), partial(print, flush=True)
    for folder in (settings.engines_dir, options.report):
        with suppress(OSError):  # the doctor says why
            folder.mkdir(parents=True, exist_ok=True)
    if not (options.report.is_dir() and os.access(options.report, os.W_OK)):  # before hours of work
        raise UsageError(f"--report {options.report}: not a directory that can be written.")
    # Large files are linked, which takes one disk.
    beside = settings.engines_dir if os.access(settings.engines_dir, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".prove-", dir=beside) as place:
        bench = Bench(wish, settings, Path(place).absolute())
        for line in announced(steps, bench):
            say(line)
        report = document(bench, run(steps, bench, say))
    say(f"{report['status']}: {write(options.report, report)}")
    return 1 if report["status"] == "failed" else 0


def _wish(options: argparse.Namespace, settings: Settings) -> Wish:
    """What to prove. Raises a `UsageError` for a target that does not exist."""
    for path in filter(None, (options.lora, options.reference)):
        if not path.exists():
            raise UsageError(f"{path}: no such file or directory.")
    more = (options.reference, options.lora, options.quick)
    target, engines_dir = options.target, settings.engines_dir
    if place := elsewhere_in(settings.model_copy(update={"engine": target})):
        return Wish(None, target, place.kind, *more)
    is_path = "/" in target or target.endswith(GGUF)
    if target == shelf.DEMO:  # the first step prepares it
        return Wish(None, target, "llamacpp", *more)
    if not is_path and any(shelf.split(target)[0] == e.name for e in shelf.entries(engines_dir)):
        return Wish(None, target, read_card(shelf.find(engines_dir, target)).kind, *more)
    checkpoint = checkpoint_at(target, to_stderr)
    if not checkpoint.exists():
        raise UsageError(f"{target}: no checkpoint, and no engine in {engines_dir}.")
    kind = options.kind or kind_for(settings, checkpoint)
    return Wish(checkpoint, checkpoint_name(checkpoint).lower(), kind, *more)
