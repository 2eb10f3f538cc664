"""A builder of one ONNX file: collects nodes, and writes each weight at once.
Independent of the model. A `Value` has the operators of an array: each adds a node. Weights go to
a `.data` file next to the graph, so that neither memory nor protobuf's limit of 2 GB bounds a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.safetensors import Array, narrow, widen
from trt_responses.prepare.faults import refusal
from trt_responses.prepare.graph.onnx_file import (
    BOOL,
    ELEMENT_TYPE,
    INT64,
    ITEM_BYTES,
    PORT_ELEMENT,
    Element,
    Node,
    Place,
    Port,
    PortElement,
    Shape,
    Stored,
    model,
)

ALIGNMENT = 4096
"""The alignment of weights: a page, so that a runtime can map a weight."""
INLINE_BYTES = 1024
SLICE_VALUES = 8_000_000


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the graph. Numbers in an operation have its type."""

    graph: Builder
    name: str
    type: int

    def __add__(self, other: Value | float) -> Value:
        return self.graph.op("Add", self, other)

    def __sub__(self, other: Value | float) -> Value:
        return self.graph.op("Sub", self, other)

    def __rsub__(self, other: float) -> Value:
        return self.graph.op("Sub", self.graph.constant(other, self.type), self)

    def __mul__(self, other: Value | float) -> Value:
        return self.graph.op("Mul", self, other)

    def __floordiv__(self, other: int) -> Value:
        """The quotient of whole, non-negative numbers."""
        return self.graph.op("Div", self, other)

    def __matmul__(self, other: Value) -> Value:
        return self.graph.op("MatMul", self, other)

    def __le__(self, other: Value) -> Value:
        return self.graph.op("LessOrEqual", self, other, type=BOOL)

    def __gt__(self, other: Value) -> Value:
        return self.graph.op("Greater", self, other, type=BOOL)

    def __and__(self, other: Value) -> Value:
        return self.graph.op("And", self, other)

    def equals(self, other: Value | float) -> Value:
        return self.graph.op("Equal", self, other, type=BOOL)

    def cast(self, type: int) -> Value:
        return self if type == self.type else self.graph.op("Cast", self, type=type, to=type)

    def transposed(self, *axes: int) -> Value:
        return self.graph.op("Transpose", self, perm=list(axes))

    def reshaped(self, *sizes: int) -> Value:
        """0 keeps an axis, -1 takes the rest."""
        return self.graph.op("Reshape", self, self.graph.whole(*sizes))

    def shaped_as(self, other: Value) -> Value:
        return self.graph.op("Reshape", self, self.graph.op("Shape", other, type=INT64))

    def unsqueezed(self, *axes: int) -> Value:
        return self.graph.op("Unsqueeze", self, self.graph.whole(*axes))

    def squeezed(self, *axes: int) -> Value:
        return self.graph.op("Squeeze", self, self.graph.whole(*axes))

    def size(self, axis: int) -> Value:
        """The length of an axis, as one whole number in a row."""
        return self.graph.op("Shape", self, type=INT64, start=axis, end=axis + 1)

    def part(self, begin: int, end: int, axis: int = -1) -> Value:
        """The elements from `begin` to `end` of an axis."""
        whole = self.graph.whole
        return self.graph.op("Slice", self, whole(begin), whole(end), whole(axis))

    def rows(self, index: Value) -> Value:
        return self.graph.op("Gather", self, index, axis=0)

    def summed(self, axis: int, *, keep: bool = False) -> Value:
        return self.graph.op("ReduceSum", self, self.graph.whole(axis), keepdims=int(keep))

    def largest(self, count: int | Value) -> tuple[Value, Value]:
        """The largest values of the last axis, in falling order, and their ids; of equals the
        first."""
        graph = self.graph
        k = graph.whole(count) if isinstance(count, int) else count
        values, ids = graph.several("TopK", (self, k), (self.type, INT64), axis=-1)
        return values, ids

    def atmost(self, bound: Value | float) -> Value:
        return self.graph.op("Min", self, bound)

    def atleast(self, bound: Value | float) -> Value:
        return self.graph.op("Max", self, bound)


class Builder:
    """Collects the nodes of one graph. A context manager: it holds the file of weights open."""

    def __init__(
        self, folder: Path, name: str, element: Element, advance: Callable[[int], object]
    ) -> None:
        self.element: Element = element
        self.type = ELEMENT_TYPE[element]
        self.inputs: list[Port] = []
        self.outputs: list[Port] = []
        self._path, self._data = (folder / f"{name}.{end}" for end in ("onnx", "data"))
        self._nodes: list[Node] = []
        self._constants: dict[str, Stored] = {}
        self._outside: dict[str, str] = {}
        self._advance = advance
        self._digest = hashlib.sha256()
        self._file = self._data.open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def input(self, name: str, type: int, shape: Shape) -> Value:
        self.inputs.append(Port(name, PORT_ELEMENT[type], shape))
        return Value(self, name, type)

    def output(self, value: Value, name: str, shape: Shape) -> None:
        """Name a result as an output, without a copy: a cache is updated in place."""
        self._outside[value.name] = name
        self.outputs.append(Port(name, PORT_ELEMENT[value.type], shape))

    def op(self, kind: str, *inputs: Value | float, type: int | None = None, **at: object) -> Value:
        """The result of one node; its type is that of the first input, or `type`."""
        first = next(i.type for i in inputs if isinstance(i, Value))
        values = [i if isinstance(i, Value) else self.constant(i, first) for i in inputs]
        return self.several(kind, values, (first if type is None else type,), **at)[0]

    def several(
        self, kind: str, inputs: Sequence[Value], types: Sequence[int], **at: object
    ) -> tuple[Value, ...]:
        """The results of one node, as many as there are types."""
        names = [f"{kind}_{len(self._nodes)}_{n}" for n in range(len(types))]
        self._nodes.append(Node(kind, [i.name for i in inputs], names, at))
        return tuple(Value(self, name, type) for name, type in zip(names, types, strict=True))

    def where(self, condition: Value, yes: Value, no: Value) -> Value:
        """The values of `yes` where the condition holds, else those of `no`."""
        return self.op("Where", condition, yes, no, type=yes.type)

    def whole(self, *numbers: int) -> Value:
        """A constant of whole numbers in a row."""
        name = "_".join(["row", *map(str, numbers)])
        return self._constant(name, np.array(numbers, np.int64), "int64")

    def constant(self, number: float, type: int) -> Value:
        """A constant of one number."""
        element = PORT_ELEMENT[type]
        wide = np.int64 if element == "int64" else np.float32
        return self._constant(f"{element}_{number}", np.array(number, wide), element)

    def count(self, stop: int) -> Value:
        """The numbers 0, 1, … below a constant."""
        return self._constant(f"count_{stop}", np.arange(stop, dtype=np.int64), "int64")

    def counted(self, stop: Value) -> Value:
        """The numbers 0, 1, … below a size that is computed in the graph."""
        zero, one = (self.constant(n, INT64) for n in (0, 1))
        return self.op("Range", zero, stop.squeezed(0), one)

    def weight(self, name: str, values: Array, element: Element | None = None) -> Value:
        """A weight of the model, in the graph's element type or in `element`."""
        return self._constant(name, values, element or self.element)

    def _constant(self, name: str, values: Array, element: PortElement) -> Value:
        """A constant; the existing one if the name is in the graph already."""
        type = ELEMENT_TYPE[element]
        if name not in self._constants:
            small = values.size * ITEM_BYTES[element] <= INLINE_BYTES
            data = stored(values, element).tobytes() if small else self._placed(values, element)
            self._constants[name] = Stored(name, type, values.shape, data)
        return Value(self, name, type)

    def _placed(self, values: Array, element: PortElement) -> Place:
        """The place of a weight's bytes. Converts a slice of rows at a time: a vocabulary's matrix
        has gigabytes."""
        self._write(b"\0" * (-self._file.tell() % ALIGNMENT))
        begin, rows = self._file.tell(), max(1, SLICE_VALUES // (values.size // len(values)))
        for at in range(0, len(values), rows):
            part = np.ascontiguousarray(stored(values[at : at + rows], element))
            self._write(part.reshape(-1).view(np.uint8).data)
            self._advance(part.nbytes)
        return Place(self._data.name, begin, self._file.tell() - begin)

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._digest.update(data)

    def save(self) -> dict[str, str]:
        """Write the graph, and return the digests of the written files by name."""
        self._file.flush()
        constants = self._constants.values()
        nodes = [node.renamed(self._outside) for node in self._nodes]
        text = model(self._path.stem, nodes, constants, self.inputs, self.outputs)
        self._path.write_bytes(text)
        return {
            self._path.name: hashlib.sha256(text).hexdigest(),
            self._data.name: self._digest.hexdigest(),
        }


def stored(values: Array, element: PortElement) -> Array:
    """Floats, or bfloat16 bits, in the element type; bfloat16 to bfloat16 is no conversion."""
    match element:
        case "int64":
            return values
        case "float32":
            return widen(values)
        case "float16":
            return _halved(values)
        case "bfloat16":
            return values if values.dtype == np.uint16 else narrow(np.asarray(values, np.float32))


def _halved(values: Array) -> Array:
    try:
        with np.errstate(over="raise"):
            return widen(values).astype(np.float16)
    except FloatingPointError:
        largest = f"{float(np.abs(widen(values)).max()):g}"
        raise refusal("graph, a weight", largest, "at most 65504 for float16") from None
