"""`trt-responses engine build --kind tensorrt | onnx`: its options, and the demos of both kinds."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trt_responses.prepare import demo
from trt_responses.prepare.progress import megabytes, shown_on
from trt_responses.prepare.tensorrt.options import Wish
from trt_responses.prepare.tensorrt.targets import TARGETS

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from trt_responses.engine.base import Engine
    from trt_responses.prepare.llamacpp.build import Built
    from trt_responses.settings import Settings

KINDS = ("tensorrt", "onnx")
DEMO_ONNX = "demo-onnx"
DEFAULT = Wish()

ABOUT = (
    "tensorrt compiles plans for the named GPUs, on any x86-64 Linux, with or without a GPU; onnx "
    "stops at the graph, which onnxruntime runs on a CPU. Both need the extra: "
    "pip install 'trt-responses[tensorrt]'. Targets: "
    + "; ".join(f"{target.name} {target.cards}" for target in TARGETS.values())
    + ". docs/tensorrt.md has an example, and what was run on what."
)


def add_tensorrt(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("TensorRT and ONNX", ABOUT)
    group.add_argument(
        "--targets",
        type=_names,
        default=(),
        metavar="SM,SM",
        help="compile for these; without: the GPU at hand, else sm120 and sm121 for MXFP4 experts, "
        "all but sm75 for others",
    )
    for name, text in (
        ("slots", "responses made at once"),
        ("length", "tokens of prompt and answer that one slot holds"),
        ("chunk", "most tokens of a prompt computed in one step"),
        ("top", "candidates that a step gives per response"),
    ):
        default = getattr(DEFAULT, name)
        shown = f"{text} (default: {default})"
        group.add_argument(f"--{name}", type=int, default=default, metavar="N", help=shown)
    text = "layers in one plan; without: as many as the memory at hand lets compile, at most 8"
    group.add_argument("--group", type=int, metavar="N", help=text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip().lower() for name in text.split(","))))


def wish_of(options: argparse.Namespace) -> Wish:
    return Wish(
        kind=options.kind,
        targets=options.targets,
        weights=options.type,
        slots=options.slots,
        length=options.length,
        chunk=options.chunk,
        top=options.top,
        group=options.group,
    )


def prepare_graph(settings: Settings, options: argparse.Namespace) -> int:
    """Of the given checkpoint, or of the demo's."""
    source, name = options.checkpoint, options.name
    if source is None:
        source = demo.demo_checkpoint(settings.engines_dir)
        name = name or f"demo-{options.kind}"
    name = name or source.resolve().name.lower()
    prepared(settings, source, name, wish_of(options), wait=options.wait)
    return 0


def prepare_demo_onnx(settings: Settings) -> Path:
    """The demo as a bare graph; done in a moment when it is there already."""
    source = demo.demo_checkpoint(settings.engines_dir)
    return prepared(settings, source, DEMO_ONNX, Wish(kind="onnx"), wait=True).directory


def prepared(settings: Settings, source: Path, name: str, wish: Wish, *, wait: bool) -> Built:
    from trt_responses.prepare.tensorrt.build import Means, prepare
    from trt_responses.tokens.vocabulary import load

    with shown_on(sys.stderr) as progress:
        means = Means(load(), progress, lambda path: _engine(path, settings))
        built = prepare(source, settings.engines_dir, name, means, wish, wait=wait)
    if built.phases:
        print(told(built), file=sys.stderr)
    return built


def _engine(directory: Path, settings: Settings) -> Engine:
    from trt_responses.backends import engine_of  # it loads every engine
    from trt_responses.prepare.card import read_card
    from trt_responses.prepare.shelf import Selection

    return engine_of(Selection(directory, read_card(directory), "to verify it"), settings)


def told(built: Built) -> str:
    card = built.card
    took = f"prepared in {sum(card.seconds.values()):.1f} s"
    lines = [f"engine {card.name}/{card.version}: {card.status}, {took}"]
    for family in card.chain.compiled if card.chain else ():
        how = "exact" if family.exact else "rounded"
        lines.append(
            f"  {', '.join(family.targets)}: {family.weights} experts ({how}), "
            f"{megabytes(family.size_bytes)} of plans, at most {megabytes(family.peak_bytes)} "
            "of memory to compile one"
        )
    return "\n".join(lines)
