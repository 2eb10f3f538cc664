"""A graph's nodes, weights and ports as the bytes of an ONNX file.
Has the format's numbers, so that only writing a file needs the `onnx` package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence  # read by dataclasses
from typing import TYPE_CHECKING, Literal, NamedTuple

from trt_responses.frozen import dataclass
from trt_responses.prepare.faults import PrepareError

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto, ValueInfoProto

Element = Literal["float32", "float16", "bfloat16"]
PortElement = Literal["float32", "float16", "bfloat16", "int64"]
Shape = tuple[int | str, ...]
"""The sizes of a tensor: numbers for fixed ones, letters for those that vary by run."""

OPSET = 24
"""The version of ONNX's operators: the first that has TensorScatter."""
IR_VERSION = 12
"""The version of the file format with these operators. Older runtimes cannot read it."""

FLOAT32, INT64, BOOL, FLOAT16, BFLOAT16 = 1, 7, 9, 10, 16
ELEMENT_TYPE: Mapping[PortElement, int] = {
    "float32": FLOAT32,
    "float16": FLOAT16,
    "bfloat16": BFLOAT16,
    "int64": INT64,
}
PORT_ELEMENT: Mapping[int, PortElement] = {type: name for name, type in ELEMENT_TYPE.items()}
ITEM_BYTES: Mapping[PortElement, int] = {"float32": 4, "float16": 2, "bfloat16": 2, "int64": 8}
NEEDS_EXTRA = (
    "Writing a graph needs onnx, which is not installed: pip install 'trt-responses[tensorrt]'."
)


class Port(NamedTuple):
    """An input or output of a graph: its name, element type and shape."""

    name: str
    element: PortElement
    shape: Shape


@dataclass(frozen=True, slots=True)
class Link:
    """One file of a chain of graphs, in running order, and its layers."""

    name: str
    """The file's name, such as `embed`, `layers_00_03` or `head`: the graph is `name.onnx`, its
    weights `name.data`."""
    first: int
    count: int
    inputs: Mapping[str, str]
    """Type and shape of each input by name, such as `bfloat16 B,S,2880`: B slots, S new tokens."""
    outputs: Mapping[str, str]


class Node(NamedTuple):
    """One operation of a graph."""

    kind: str
    inputs: list[str]
    outputs: list[str]
    attributes: Mapping[str, object]

    def renamed(self, names: Mapping[str, str]) -> Node:
        inputs, outputs = ([names.get(n, n) for n in side] for side in (self.inputs, self.outputs))
        return self._replace(inputs=inputs, outputs=outputs)


class Place(NamedTuple):
    """The place of a weight's bytes in the file next to the graph."""

    location: str
    offset: int
    length: int


class Stored(NamedTuple):
    """A constant: its bytes, or their place."""

    name: str
    type: int
    shape: tuple[int, ...]
    data: bytes | Place


def model(
    name: str,
    nodes: Iterable[Node],
    constants: Iterable[Stored],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
) -> bytes:
    """The bytes of the file. The same graph always gives the same bytes."""
    try:
        from onnx import helper
    except ModuleNotFoundError:
        raise PrepareError(NEEDS_EXTRA) from None
    graph = helper.make_graph(
        [_node(node) for node in nodes],
        name,
        [_info(port) for port in inputs],
        [_info(port) for port in outputs],
        [_tensor(constant) for constant in constants],
    )
    opset = helper.make_opsetid("", OPSET)
    whole = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
    return bytes(whole.SerializeToString(deterministic=True))


def _node(node: Node) -> NodeProto:
    from onnx import helper

    found = helper.make_node(node.kind, node.inputs, node.outputs, name=node.outputs[0])
    found.attribute.extend(helper.make_attribute(k, v) for k, v in sorted(node.attributes.items()))
    return found


def _info(port: Port) -> ValueInfoProto:
    from onnx import helper

    return helper.make_tensor_value_info(port.name, ELEMENT_TYPE[port.element], port.shape)


def _tensor(constant: Stored) -> TensorProto:
    from onnx import TensorProto

    tensor = TensorProto(name=constant.name, data_type=constant.type, dims=constant.shape)
    if isinstance(constant.data, bytes):
        tensor.raw_data = constant.data
        return tensor
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in constant.data._asdict().items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor
