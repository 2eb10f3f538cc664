"""`trt-responses engine build --kind tensorrt | onnx`: its options, and the demos of both kinds."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from trt_responses.cli.building import build_tools, print_built
from trt_responses.cli.commands import WIDTH, number_from
from trt_responses.prepare import demo
from trt_responses.prepare.checkpoint.open import checkpoint_name
from trt_responses.prepare.pipeline import Built
from trt_responses.prepare.shelf.shelf import DEMO_ONNX
from trt_responses.prepare.tensorrt.build import prepare
from trt_responses.prepare.tensorrt.options import TensorRtOptions
from trt_responses.prepare.tensorrt.targets import TARGETS
from trt_responses.settings import Settings

KINDS = ("tensorrt", "onnx")
DEFAULT = TensorRtOptions()

ABOUT = textwrap.fill(
    "tensorrt compiles plans for the named GPUs, on any x86-64 Linux, with or without a GPU. onnx "
    "makes only the graph, for onnxruntime on a CPU. Both need the extra: "
    "pip install 'trt-responses[tensorrt]'. Targets: "
    + "; ".join(f"{target.name} {target.cards}" for target in TARGETS.values())
    + ". See docs/tensorrt.md.",
    WIDTH - 2,
)


def add_tensorrt(parser: argparse.ArgumentParser) -> None:
    """Add the options of the kinds `tensorrt` and `onnx`."""
    group = parser.add_argument_group("TensorRT and ONNX", ABOUT)
    group.add_argument(
        "--targets",
        type=_names,
        default=(),
        metavar="SM,SM",
        help="GPU targets (default: this machine's GPU, else sm120 and sm121 for MXFP4 experts and "
        "all but sm75 for others)",
    )
    for name, text in (
        ("slots", "Responses at once"),
        ("length", "Tokens of prompt and answer in one slot"),
        ("chunk", "Maximum prompt tokens in one step"),
        ("top", "Candidates per response and step"),
    ):
        default = getattr(DEFAULT, name)
        shown = f"{text} (default: {default})"
        group.add_argument(
            f"--{name}", type=number_from(1), default=default, metavar="N", help=shown
        )
    text = "Layers in one plan (default: as many as memory allows, at most 8)"
    group.add_argument("--group", type=number_from(1), metavar="N", help=text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip().lower() for name in text.split(","))))


def options_of(options: argparse.Namespace) -> TensorRtOptions:
    """The options of a compiled engine, from those of the command line."""
    return TensorRtOptions(
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
    """Prepare a graph, of the given checkpoint or of the demo's."""
    source, name = options.checkpoint, options.name
    if source is None:
        source = demo.demo_checkpoint(settings.engines_dir)
        name = name or f"demo-{options.kind}"
    name = name or checkpoint_name(source).lower()
    prepared(settings, source, name, options_of(options), wait=options.wait)
    return 0


def prepare_demo_onnx(settings: Settings) -> Path:
    """Prepare the demo as a bare graph; returns at once if it already exists."""
    source = demo.demo_checkpoint(settings.engines_dir)
    return prepared(settings, source, DEMO_ONNX, TensorRtOptions(kind="onnx"), wait=True).directory


def prepared(
    settings: Settings, source: Path, name: str, chosen: TensorRtOptions, *, wait: bool
) -> Built:
    """Prepare a graph with the chosen options."""
    with build_tools(settings) as tools:
        built = prepare(source, settings.engines_dir, name, tools, chosen, wait=wait)
    print_built(built)
    return built
