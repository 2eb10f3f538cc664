"""A tensor of a graph under construction, with the operators of an array.
Each method adds one node to the graph. Independent of model and file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trt_responses.frozen import dataclass
from trt_responses.prepare.graph.onnx_file import BOOL, INT64


class Graph(Protocol):
    """The graph, as its values use it."""

    def op(self, kind: str, *inputs: Value | float, type: int | None = None, **at: object) -> Value:
        """The result of one node; its type is that of the first input, or `type`."""

    def several(
        self, kind: str, inputs: Sequence[Value], types: Sequence[int], **at: object
    ) -> tuple[Value, ...]:
        """The results of one node, as many as there are types."""

    def where(self, condition: Value, yes: Value, no: Value) -> Value:
        """The values of `yes` where the condition holds, else those of `no`."""
        ...

    def constant(self, number: float, type: int) -> Value: ...

    def whole(self, *numbers: int) -> Value:
        """A constant of whole numbers in a row."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the graph. Numbers in an operation have its type."""

    graph: Graph
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
