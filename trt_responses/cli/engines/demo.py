"""Prepares the demo engine, and gpt-oss checkpoints for the embedded engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.cli.building import build_tools, print_built
from trt_responses.prepare import demo
from trt_responses.prepare.llamacpp.build import prepare
from trt_responses.prepare.shelf import shelf, versions
from trt_responses.prepare.shelf.promotion import promote

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.prepare.llamacpp.gguf import WeightType
    from trt_responses.prepare.pipeline import Built
    from trt_responses.settings import Settings


def prepare_demo(settings: Settings) -> Path:
    """Prepare the demo engine of this checkout; returns at once if it already exists."""
    source = demo.demo_checkpoint(settings.engines_dir)
    built = prepare_llamacpp(
        settings, name=shelf.DEMO, source=source, weight_type="q8_0", wait=True
    )
    pointer = versions.promoted(built.directory.parent)
    if built.phases and pointer is not None and pointer.version != built.card.version:
        promote(
            settings.engines_dir,
            f"{shelf.DEMO}@{built.card.version}",
            "the demo of this release",
        )
    return built.directory


def prepare_llamacpp(
    settings: Settings,
    *,
    name: str,
    source: Path,
    weight_type: WeightType,
    wait: bool,
    move: bool = False,
) -> Built:
    """Prepare a checkpoint of gpt-oss for the embedded engine."""
    with build_tools(settings, move=move) as tools:
        built = prepare(
            source,
            settings.engines_dir,
            name,
            tools,
            weight_type=weight_type,
            wait=wait,
        )
    print_built(built)
    return built
