"""Prepares the demo engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.cli.building import prepare_llamacpp
from trt_responses.prepare import demo
from trt_responses.prepare.shelf import shelf, versions
from trt_responses.prepare.shelf.promotion import promote

if TYPE_CHECKING:
    from pathlib import Path

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
