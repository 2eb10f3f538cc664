"""A layer's expert weights as constants for the builder, in a family's format.
Converts MXFP4 to each format, expert by expert, so that memory holds one whole matrix only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from trt_responses.prepare.checkpoint.mxfp4 import SCALE_BIAS, VALUES, codes, dequantised
from trt_responses.prepare.checkpoint.safetensors import Array, Bytes, Floats, Tensor, narrow, widen
from trt_responses.prepare.graph.onnx_file import Element
from trt_responses.prepare.shelf.chain import Format
from trt_responses.prepare.tensorrt.targets import Family

Tensors = Mapping[str, Tensor]
Order = Callable[[Array], Array]

BLOCK = 32
DOUBLED = (VALUES * 2).astype(np.int8)
"""The doubled value of each MXFP4 code, a small whole number."""
DATA_TYPE: Mapping[Element, str] = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BF16"}


class Constant(NamedTuple):
    """The values of a constant in the builder's type and logical shape, with scales by block or
    without."""

    values: Array
    type: str
    shape: tuple[int, ...]
    scales: Array | None = None
    scale_type: str = ""
    exact: bool = True
    """Whether it equals the checkpoint's values."""


def constant(tensors: Tensors, layer: int, projection: str, family: Family) -> Constant:
    """The experts' `gate_up` or `down` [experts, out, in], rows in the graph's order."""
    name = f"model.layers.{layer}.mlp.experts.{projection}_proj"
    order = _gate_first if projection == "gate_up" else _as_they_are
    if f"{name}_blocks" not in tensors:
        return _dense(tensors[name].read(), order, family.element)
    blocks, scales = (tensors[f"{name}_{part}"].read() for part in ("blocks", "scales"))
    return PACKED[family.weights](blocks, scales, order, family.element)


def _as_they_are(rows: Array) -> Array:
    return rows


def _gate_first(rows: Array) -> Array:
    """The rows with the gate's first. In a checkpoint they alternate with the linear half's."""
    return np.concatenate([rows[0::2], rows[1::2]])


def _dense(stored: Array, order: Order, element: Element) -> Constant:
    experts, inputs, outputs = stored.shape
    return _converted((order(rows.T) for rows in stored), (experts, outputs, inputs), element)


def _unpacked(blocks: Array, scales: Array, order: Order, element: Element) -> Constant:
    matrices = (order(dequantised(*pair)) for pair in zip(blocks, scales, strict=True))
    return _converted(matrices, _logical(blocks), element)


def _converted(matrices: Iterable[Array], shape: tuple[int, ...], element: Element) -> Constant:
    """The experts' matrices in an element's type, one after the other."""
    values = np.empty(shape, _numpy_type(element))
    exact = True
    for n, matrix in enumerate(matrices):
        values[n], same = _as_element(matrix, element)
        exact &= same
    return Constant(values, DATA_TYPE[element], shape, exact=exact)


def _four_bits(blocks: Array, scales: Array, order: Order, element: Element) -> Constant:
    """The checkpoint's bytes: two codes each, the first in the low half."""
    experts, outputs, inputs = _logical(blocks)
    values = np.empty((experts, outputs, inputs // 2), np.uint8)
    for n in range(experts):
        values[n] = order(blocks[n]).reshape(outputs, -1)
    return Constant(values, "FP4", _logical(blocks), _each(order, scales), "E8M0")


def _eight_bits(blocks: Array, scales: Array, order: Order, element: Element) -> Constant:
    """The doubled values, which are whole numbers, and the halved scales of the blocks."""
    values = np.empty(_logical(blocks), np.int8)
    for n in range(len(values)):
        values[n] = DOUBLED[codes(order(blocks[n]))].reshape(values.shape[1:])
    exponents = _each(order, scales).astype(np.int32) - SCALE_BIAS - 1
    stored, exact = _as_element(np.ldexp(np.float32(1), exponents), element)
    return Constant(values, "INT8", values.shape, stored, DATA_TYPE[element], exact)


def _each(order: Order, scales: Array) -> Bytes:
    return np.stack([order(rows) for rows in np.asarray(scales, np.uint8)]).astype(np.uint8)


PACKED: Mapping[Format, Callable[[Array, Array, Order, Element], Constant]] = {
    "mxfp4": _four_bits,
    "int8": _eight_bits,
    "bf16": _unpacked,
    "f16": _unpacked,
    "f32": _unpacked,
}


def _logical(blocks: Array) -> tuple[int, ...]:
    experts, outputs, count, _ = blocks.shape
    return experts, outputs, count * BLOCK


def _numpy_type(element: Element) -> np.dtype[np.generic]:
    """The numpy type of an element; 16-bit integers for bfloat16, which numpy lacks."""
    names = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
    return np.dtype(names[element])


def _as_element(values: Array, element: Element) -> tuple[Array, bool]:
    """The values in an element's type, and whether the conversion is exact."""
    if element == "bfloat16" and values.dtype == np.uint16:
        return np.ascontiguousarray(values), True
    plain: Floats = widen(values)
    if element == "float32":
        return np.ascontiguousarray(plain), True
    with np.errstate(over="ignore"):  # an overflow is not exact
        stored: Array = narrow(plain) if element == "bfloat16" else plain.astype(np.float16)
    return np.ascontiguousarray(stored), bool((widen(stored) == plain).all())
