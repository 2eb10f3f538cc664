"""A checkpoint's tensors in a graph's order and element type: the gate's rows come first.
Maps the checkpoint's names and layouts; also builds the linear layer and the norm. The experts'
weights, which a graph has as inputs, go unchanged to one safetensors file; `open_experts` returns
it as a view that `dense` and `packed` read like a checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.architecture import Architecture
from trt_responses.prepare.checkpoint.mxfp4 import dequantised
from trt_responses.prepare.checkpoint.open import Checkpoint
from trt_responses.prepare.checkpoint.safetensors import Array, Tensor, read_tensors, write_tensors
from trt_responses.prepare.files import EXPERTS
from trt_responses.prepare.graph.builder import Builder, Value, stored
from trt_responses.prepare.graph.onnx_file import Element

PROJECTIONS = ("gate_up", "down")
ENDS = ("", "_blocks", "_scales")


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensors under one prefix of a checkpoint, as values of a graph."""

    graph: Builder
    checkpoint: Checkpoint
    prefix: str
    eps: float

    def own(
        self, name: str, shape: tuple[int, ...] | None = None, element: Element | None = None
    ) -> Value:
        """A tensor in its own shape, or in `shape`."""
        full = f"{self.prefix}{name}"
        values = self._read(full)
        return self.graph.weight(full, values.reshape(shape or values.shape), element)

    def linear(self, x: Value, name: str) -> Value:
        """The result of x·Wᵀ + b."""
        full = f"{self.prefix}{name}.weight"
        return x @ self.graph.weight(full, self._read(full).T) + self.own(f"{name}.bias")

    def normed(self, x: Value, name: str) -> Value:
        """The RMS norm of `x`. Its mean is computed in float32 for every type."""
        weight = self.own(name)
        return x.graph.op("RMSNormalization", x, weight, axis=-1, epsilon=self.eps)

    def expert_bias(self, name: str, *, gate_comes_first: bool = False) -> Value:
        """The experts' biases, [E,1,outputs]."""
        full = f"{self.prefix}mlp.experts.{name}_bias"
        bias = self._read(full)
        return self.graph.weight(full, (gate_first(bias) if gate_comes_first else bias)[:, None])

    def _read(self, name: str) -> Array:
        return self.checkpoint.tensors[name].read()


def gate_first(rows: Array) -> Array:
    """The rows of [E,2I,…] in the graph's order: the gate's (the even ones), then the linear
    half's."""
    return np.concatenate([rows[:, 0::2], rows[:, 1::2]], axis=1)


class Packed(NamedTuple):
    """MXFP4 weights of the checkpoint, with the rows in the graph's order. Moved, not converted."""

    blocks: Array
    """u8 [E,rows,columns/32,16]: of a block, value 2j is low in byte j, value 2j+1 high."""
    scales: Array
    """u8 [E,rows,columns/32]: the powers of two; 127 stands for 1."""


def input_name(layer: int, projection: str) -> str:
    """The name in a graph for the weights of a layer's experts: `layers.3.gate_up`,
    `layers.3.down`."""
    return f"layers.{layer}.{projection}"


def packed(checkpoint: Checkpoint, layer: int, projection: str) -> Packed:
    """One projection of all experts of an MXFP4 checkpoint."""
    name = f"model.layers.{layer}.mlp.experts.{projection}_proj"
    parts = [checkpoint.tensors[f"{name}_{part}"].read() for part in ("blocks", "scales")]
    return Packed(*(map(gate_first, parts) if projection == "gate_up" else parts))


def dense(checkpoint: Checkpoint, layer: int, projection: str, element: Element) -> Array:
    """One projection, [E,rows,columns], in the element type (bfloat16 as its bits)."""
    if checkpoint.architecture.packed:
        values: Array = dequantised(*packed(checkpoint, layer, projection))
        return stored(values, element)
    name = f"model.layers.{layer}.mlp.experts.{projection}_proj"
    values = checkpoint.tensors[name].read().transpose(0, 2, 1)
    return stored(gate_first(values) if projection == "gate_up" else values, element)


def expert_shape(a: Architecture, projection: str) -> tuple[int, ...]:
    """The shape of one projection's weights."""
    if projection == "gate_up":
        return (a.experts, 2 * a.intermediate, a.hidden)
    return (a.experts, a.hidden, a.intermediate)


def expert_tensors(checkpoint: Checkpoint) -> list[Tensor]:
    """The experts' tensors of a checkpoint."""
    wanted = tuple(f".mlp.experts.{name}_proj{end}" for name in PROJECTIONS for end in ENDS)
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
