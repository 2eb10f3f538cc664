"""The file with the experts' weights, which a graph has as inputs; unchanged from the checkpoint.
`write_experts` writes one safetensors file, and `open_experts` returns it as a view that
`weights.dense` and `packed` read like a checkpoint. Independent of graph and runtime.
"""

from __future__ import annotations

from pathlib import Path

from trt_responses.prepare.checkpoint.architecture import Architecture
from trt_responses.prepare.checkpoint.open import Checkpoint
from trt_responses.prepare.checkpoint.safetensors import Tensor, read_tensors, write_tensors
from trt_responses.prepare.files import EXPERTS

PROJECTIONS = ("gate_up_proj", "down_proj")
ENDS = ("", "_blocks", "_scales")


def expert_tensors(checkpoint: Checkpoint) -> list[Tensor]:
    """The experts' tensors of a checkpoint."""
    wanted = tuple(f".mlp.experts.{name}{end}" for name in PROJECTIONS for end in ENDS)
    return [t for name, t in checkpoint.tensors.items() if name.endswith(wanted)]


def write_experts(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write the experts' tensors next to the graph, and return their file."""
    path = folder / EXPERTS
    write_tensors(path, expert_tensors(checkpoint))
    return path


def open_experts(folder: Path, architecture: Architecture) -> Checkpoint:
    """The experts of a prepared engine, as a checkpoint without other tensors."""
    path = folder / EXPERTS
    return Checkpoint(folder, "hf", architecture, read_tensors(path), (path,))
