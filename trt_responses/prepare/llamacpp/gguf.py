"""Writes a checkpoint as one GGUF file, tensor by tensor and slice by slice.
Maps gpt-oss to llama.cpp's names and layouts. Norms, biases, sinks and the router stay float32,
since llama.cpp aborts otherwise; MXFP4 is repacked without loss.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from gguf import MODEL_ARCH, TensorNameMap, get_tensor_name_map
from gguf import GGMLQuantizationType as Kind
from gguf.quants import quantize

from trt_responses.prepare.checkpoint.architecture import Architecture
from trt_responses.prepare.checkpoint.expected import expected_tensors
from trt_responses.prepare.checkpoint.mxfp4 import dequantised, repacked
from trt_responses.prepare.checkpoint.open import Checkpoint
from trt_responses.prepare.checkpoint.safetensors import Array, Tensor, narrow, widen
from trt_responses.prepare.faults import refusal
from trt_responses.prepare.llamacpp.head import Planned, write_head
from trt_responses.tokens.vocabulary import Vocabulary

WeightType = Literal["f32", "bf16", "q8_0"]
WEIGHT_TYPES: tuple[WeightType, ...] = get_args(WeightType)

SLICE_VALUES = 8_000_000
"""The number of values converted at once: 32 MB as float32, a few times that while they are
quantised."""
ALIGNMENT = 32

KINDS: Mapping[WeightType, Kind] = {"f32": Kind.F32, "bf16": Kind.BF16, "q8_0": Kind.Q8_0}
ALWAYS_F32 = ("norm.weight", "_norm.weight", ".bias", "sinks.weight", "gate_inp.weight")
EXPERTS = {"gate_up_proj": ("gate", "up"), "down_proj": ("down",)}


def write_gguf(
    tensors: Sequence[Planned],
    architecture: Architecture,
    target: Path,
    vocabulary: Vocabulary,
    advance: Callable[[int], object],
) -> str:
    """Write these tensors and a head to a file, sync it, and return its SHA-256."""
    write_head(target, architecture, vocabulary, tensors)
    digest = hashlib.sha256(target.read_bytes())
    with target.open("ab") as file:

        def write(data: bytes | memoryview) -> None:
            file.write(data)
            digest.update(data)

        write(_padding(file.tell()))
        for tensor in tensors:
            _write_tensor(tensor, write, advance)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _write_tensor(
    tensor: Planned,
    write: Callable[[bytes | memoryview], None],
    advance: Callable[[int], object],
) -> None:
    written = 0
    for part in tensor.slices():
        data = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
        write(data)
        written += data.nbytes
        advance(data.nbytes)
    if written != tensor.size_bytes:
        raise refusal(f"tensor {tensor.name}", f"{written} bytes", tensor.size_bytes)
    write(_padding(written))


def _padding(position: int) -> bytes:
    return bytes(-position % ALIGNMENT)


def plan(checkpoint: Checkpoint, weight_type: WeightType, *, unpack: bool = False) -> list[Planned]:
    """The tensors of the file, computed from shapes alone. `unpack` dequantises MXFP4."""
    a = checkpoint.architecture
    if weight_type == "q8_0":
        for name, row in (("hidden_size", a.hidden), ("intermediate_size", a.intermediate)):
            if row % 32:
                raise refusal(f"config.json, {name}", row, "a multiple of 32 for q8_0")
    kind = KINDS[weight_type]
    names, tensors = get_tensor_name_map(MODEL_ARCH.GPT_OSS, a.layers), []
    for name, tensor in checkpoint.tensors.items():
        if ".experts." not in name:
            tensors.append(_plain(_translated(name, names), tensor, kind))
    for n in range(a.layers):
        for projection, halves in EXPERTS.items():
            tensors += _experts(checkpoint, n, projection, halves, kind, unpack=unpack)
    return tensors


def tensor_shapes(a: Architecture) -> dict[str, tuple[int, ...]]:
    """Every tensor of a gpt-oss file, by llama.cpp's name, with its shape."""
    names = get_tensor_name_map(MODEL_ARCH.GPT_OSS, a.layers)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, expected in expected_tensors(replace(a, packed=False)).items():
        if ".experts." not in name:
            shapes[_translated(name, names)] = expected.shape
    for n in range(a.layers):
        for half, rows, row in (
            ("gate", a.intermediate, a.hidden),
            ("up", a.intermediate, a.hidden),
            ("down", a.hidden, a.intermediate),
        ):
            shapes[f"blk.{n}.ffn_{half}_exps.weight"] = (a.experts, rows, row)
            shapes[f"blk.{n}.ffn_{half}_exps.bias"] = (a.experts, rows)
    return shapes


def _translated(name: str, names: TensorNameMap) -> str:
    name = f"{name}.weight" if name.endswith(".sinks") else name
    theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert theirs is not None, name
    return theirs


def _plain(name: str, tensor: Tensor, kind: Kind) -> Planned:
    kind = Kind.F32 if name.endswith(ALWAYS_F32) else kind
    return Planned(name, tensor.shape, kind, partial(_slices, tensor, kind))


def _slices(tensor: Tensor, kind: Kind) -> Iterator[Array]:
    values = tensor.read()
    rows = max(1, SLICE_VALUES // max(1, int(np.prod(tensor.shape[1:]))))
    for start in range(0, tensor.shape[0], rows):
        yield encoded(values[start : start + rows], kind)


def encoded(values: Array, kind: Kind) -> Array:
    """The bytes in that kind of bfloat16 bits or of float32. bfloat16 to bfloat16 is a copy."""
    match kind:
        case Kind.F32:
            return widen(values)
        case Kind.BF16:
            return values if values.dtype == np.uint16 else narrow(widen(values))
    found: Array = quantize(widen(values), kind)
    return found


def _experts(
    checkpoint: Checkpoint,
    layer: int,
    projection: str,
    halves: tuple[str, ...],
    kind: Kind,
    *,
    unpack: bool,
) -> Iterator[Planned]:
    """The tensors of each expert matrix and bias. In the source, gate and up are interleaved row by
    row in one tensor."""
    a = checkpoint.architecture
    prefix = f"model.layers.{layer}.mlp.experts.{projection}"
    bias = checkpoint.tensors[f"{prefix}_bias"]
    experts, both = bias.shape
    inputs = a.hidden if projection == "gate_up_proj" else a.intermediate
    stored = Kind.MXFP4 if a.packed and not unpack else kind
    for n, half in enumerate(halves):
        rows = slice(n, None, len(halves))
        shape = (experts, both // len(halves), inputs)
        name = f"blk.{layer}.ffn_{half}_exps"
        slices = partial(_expert_slices, checkpoint, prefix, rows, stored)
        yield Planned(f"{name}.weight", shape, stored, slices)
        yield Planned(f"{name}.bias", shape[:2], Kind.F32, partial(_bias_slices, bias, rows))


def _bias_slices(bias: Tensor, rows: slice) -> Iterator[Array]:
    yield widen(bias.read()[:, rows])


def _expert_slices(checkpoint: Checkpoint, prefix: str, rows: slice, kind: Kind) -> Iterator[Array]:
    """One expert at a time, as [out, in]."""
    tensors = checkpoint.tensors
    if not checkpoint.architecture.packed:
        for expert in tensors[prefix].read():
            yield encoded(np.ascontiguousarray(expert.T[rows]), kind)
        return
    blocks, scales = (tensors[f"{prefix}_{part}"].read() for part in ("blocks", "scales"))
    for block, scale in zip(blocks, scales, strict=True):
        if kind == Kind.MXFP4:
            yield repacked(block[rows], scale[rows])
        else:
            yield encoded(dequantised(block[rows], scale[rows]), kind)
