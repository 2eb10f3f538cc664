"""`trt-responses engine build --kind tensorrt | onnx`: its options, and the demos of both kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.cli.building import build_tools, tell
from trt_responses.prepare import demo
from trt_responses.prepare.checkpoint.open import checkpoint_name
from trt_responses.prepare.shelf.shelf import DEMO_ONNX
from trt_responses.prepare.tensorrt.build import prepare
from trt_responses.prepare.tensorrt.options import TensorRtOptions
from trt_responses.prepare.tensorrt.targets import TARGETS

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from trt_responses.prepare.pipeline import Built
    from trt_responses.settings import Settings

KINDS = ("tensorrt", "onnx")
DEFAULT = TensorRtOptions()

ABOUT = (
    "tensorrt compiles plans for the named GPUs, on any x86-64 Linux, with or without a GPU; onnx "
    "stops at the graph, which onnxruntime runs on a CPU. Both need the extra: "
    "pip install 'trt-responses[tensorrt]'. Targets: "
    + "; ".join(f"{target.name} {target.cards}" for target in TARGETS.values())
    + ". docs/tensorrt.md has an example, and what was run on what."
)


def add_tensorrt(parser: argparse.ArgumentParser) -> None:
    """Add the options of the kinds `tensorrt` and `onnx`."""
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
    """Prepare the demo as a bare graph; done in a moment when it is there already."""
    source = demo.demo_checkpoint(settings.engines_dir)
    return prepared(settings, source, DEMO_ONNX, TensorRtOptions(kind="onnx"), wait=True).directory


def prepared(
    settings: Settings, source: Path, name: str, chosen: TensorRtOptions, *, wait: bool
) -> Built:
    """Prepare a graph with the chosen options."""
    with build_tools(settings) as tools:
        built = prepare(source, settings.engines_dir, name, tools, chosen, wait=wait)
    tell(built)
    return built
