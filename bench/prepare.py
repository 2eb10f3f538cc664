"""What preparing costs: memory for a 20b-shaped checkpoint, seconds for the demo.

`python -m bench.prepare [--layers 2]`; 24 are the whole model. The large checkpoint is sparse:
headers, sizes and shapes are real and the values are zeros, so reading costs less than from a disk,
and all else as much.
It writes 3.3 GB, or 13.8 GB with all layers, to the temporary directory (TMPDIR) and removes them.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.checkpoints import GPT_OSS_20B, Recipe, write_checkpoint
from scripts.gguf_model import convert, planned_bytes
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.demo import demo_checkpoint
from trt_responses.prepare.files import MODEL
from trt_responses.prepare.llamacpp.build import prepare
from trt_responses.prepare.pipeline import BuildTools
from trt_responses.prepare.shelf.shelf import SOURCE
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from collections.abc import Iterator

BOUND_BYTES = 2 << 30
"""What preparing may hold beside the largest tensor."""

FEW = 2
"""Layers: enough for the peak, since the largest tensor belongs to none of them."""

Figures = dict[str, float]


def large(folder: Path, layers: int) -> Figures:
    """Convert a sparse 20b in a process of its own, and ask that process for its peak."""
    recipe = Recipe(replace(GPT_OSS_20B, layers=layers), form="mxfp4", sparse=True, shards=3)
    write_checkpoint(folder / "20b", recipe)
    command = [sys.executable, "-m", "bench.prepare", "--child", str(folder)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    found: Figures = json.loads(output)
    return found


def child(folder: Path) -> Figures:
    checkpoint = open_checkpoint(folder / "20b")
    vocabulary = vocabularies.load()
    before, began = peak_bytes(), time.perf_counter()
    convert(checkpoint, folder / "model.gguf", vocabulary)
    return {
        "seconds": time.perf_counter() - began,
        "written_bytes": planned_bytes(checkpoint, "bf16"),
        "largest_tensor_bytes": max(t.size_bytes for t in checkpoint.tensors.values()),
        "peak_before_bytes": before,
        "peak_bytes": peak_bytes(),
    }


def peak_bytes() -> int:
    """Of this process since it began its program, mapped files included."""
    status = Path("/proc/self/status").read_text("ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def demo(folder: Path, source: Path) -> Figures:
    """From the compact source to a verified engine, and again when the engine exists."""
    shutil.copytree(source, folder / SOURCE)
    tools = BuildTools(
        vocabularies.load(), engine_for=lambda directory, card: LlamaCppEngine(directory / MODEL)
    )
    began = time.perf_counter()
    checkpoint = demo_checkpoint(folder)
    expanded = time.perf_counter()
    card = prepare(checkpoint, folder, "demo", tools, weight_type="q8_0").card
    built = time.perf_counter()
    prepare(demo_checkpoint(folder), folder, "demo", tools, weight_type="q8_0")
    return {
        "expand": expanded - began,
        **card.seconds,
        "together": built - began,
        "again": time.perf_counter() - built,
    }


def measured(layers: int) -> dict[str, Figures]:
    with tempfile.TemporaryDirectory() as name:
        source = Path(__file__).parents[1] / "engines" / SOURCE
        small = demo(Path(name) / "engines", source)
        figures = large(Path(name), layers)
    figures["beyond_tensor_bytes"] = figures["peak_bytes"] - figures["largest_tensor_bytes"]
    return {"the demo": small, f"a 20b's shape, {layers} of its layers, sparse": figures}


def lines(name: str, figures: Figures) -> Iterator[str]:
    yield f"Preparing {name}"
    for key, value in figures.items():
        shown = f"{value / 1e6:,.0f} MB" if key.endswith("_bytes") else f"{value:.2f} s"
        bound = f"  of {BOUND_BYTES / 1e6:,.0f} MB" if key.startswith("beyond") else ""
        yield f"  {key.removesuffix('_bytes').replace('_', ' '):<16}{shown:>12}{bound}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=FEW)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child)))
        return 0
    found = measured(options.layers)
    for name, figures in found.items():
        print("\n".join(lines(name, figures)))
    return int(any(f.get("beyond_tensor_bytes", 0) > BOUND_BYTES for f in found.values()))


if __name__ == "__main__":
    sys.exit(main())
