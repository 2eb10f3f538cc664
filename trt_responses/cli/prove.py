"""`trt-responses prove`. Parses, calls, prints."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.cli.commands import add_command, add_settings, settings_of
from trt_responses.errors import UsageError
from trt_responses.prepare.checkpoint.open import checkpoint_name
from trt_responses.prepare.files import GGUF
from trt_responses.prepare.hardware import this_hardware
from trt_responses.prepare.hub import checkpoint_at
from trt_responses.prepare.shelf import shelf
from trt_responses.prepare.shelf.card import read_card
from trt_responses.prepare.trtllm.preflight import gpu_class_of
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
    parser.add_argument(
        "target",
        metavar="CHECKPOINT|ENGINE",
        help="Checkpoint to build, prepared engine, or grpc://host:port/model, "
        "triton://host:port/model",
    )
    add_settings(parser, "engines_dir")
    parser.add_argument("--kind", choices=KINDS, help="Kind to build (default: as `engine build`)")
    parser.add_argument("--lora", type=Path, metavar="DIR", help="Adapter to prove (default: none)")
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="DIR",
        help="Checkpoint for the numbers of our own forward pass (default: the engine's own)",
    )
    parser.add_argument("--quick", action="store_true", help="Fewer streams, tasks and tokens")
    names = ", ".join(step.name for step in STEPS)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[step.name for step in STEPS],
        metavar="STEP",
        help=f"Single step, repeatable: {names} (default: all)",
    )
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("proof"),
        metavar="DIR",
        help="Directory of proof.json and proof.html (default: proof)",
    )


def _prove(options: argparse.Namespace) -> int:
    settings = settings_of(options, "engines_dir")
    wish = _wish(options, settings)
    steps, say = chosen(options.only), partial(print, flush=True)
    with tempfile.TemporaryDirectory(prefix="prove-") as folder:
        bench = Bench(wish, settings, Path(folder))
        for line in announced(steps, bench):
            say(line)
        report = document(bench, run(steps, bench, say))
    say(f"{report['status']}: {write(options.report, report)}")
    return 1 if report["status"] == "failed" else 0


def _wish(options: argparse.Namespace, settings: Settings) -> Wish:
    """What to prove. Raises a `UsageError` for a target that does not exist."""
    for path in (options.lora, options.reference):
        if path is not None and not path.exists():
            raise UsageError(f"{path}: no such file or directory.")
    target, checkpoint = options.target, None
    kind: str
    place = settings.model_copy(update={"engine": target}).engine_elsewhere()
    known = {entry.name for entry in shelf.entries(settings.engines_dir)} | {shelf.DEMO}
    if place is not None:
        kind, name = place.kind, target
    elif shelf.split(target)[0] in known if not _is_path(target) else False:
        kind, name = _kind_of(settings, target), target
    else:
        checkpoint = checkpoint_at(target, print)
        if not checkpoint.exists():
            raise UsageError(f"{target}: no checkpoint, and no engine in {settings.engines_dir}.")
        kind, name = options.kind or _kind_for(settings, checkpoint), checkpoint_name(checkpoint)
    return Wish(
        checkpoint=checkpoint,
        engine=name if checkpoint is None else name.lower(),
        kind=kind,
        reference=options.reference,
        lora=options.lora,
        quick=options.quick,
    )


def _is_path(target: str) -> bool:
    return "/" in target or Path(target).suffix == GGUF


def _kind_of(settings: Settings, engine: str) -> str:
    """The kind of a prepared engine. The demo is prepared by the first step."""
    if engine == shelf.DEMO:
        return "llamacpp"
    return read_card(shelf.find(settings.engines_dir, engine)).kind


def _kind_for(settings: Settings, checkpoint: Path) -> str:
    """The kind that `engine build` chooses for a checkpoint on this machine."""
    hardware = this_hardware(settings.engines_dir, settings.trtllm_python)
    gpu = checkpoint.suffix.lower() != GGUF and gpu_class_of(hardware) is not None
    return "trtllm" if gpu else "llamacpp"
