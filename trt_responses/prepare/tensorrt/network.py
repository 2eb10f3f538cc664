"""Compiles one graph file into one plan: parses it, fills in the expert weights, and builds.
Uses the builder's API through `binding`, in a separate process (`__main__` of `job`), since the
builder keeps its memory. Chooses no groups and writes no card.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping  # decoded by its annotation
from pathlib import Path
from types import ModuleType
from typing import Any

from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.safetensors import Array, Tensor
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.graph.onnx_file import Element
from trt_responses.prepare.tensorrt.binding import Binding
from trt_responses.prepare.tensorrt.targets import Family
from trt_responses.prepare.tensorrt.weights import DATA_TYPE, Constant, constant

EXPERTS = re.compile(r"layers\.(\d+)\.(gate_up|down)")


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the network."""

    name: str
    type: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """The network before the build: its layers, ports and profiles."""

    layers: Mapping[str, int]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    profiles: tuple[Mapping[str, tuple[tuple[int, ...], ...]], ...]
    exact: bool


class Network:
    """A parsed graph. Holds the arrays of its constants, since the builder reads them during the
    build."""

    def __init__(self, binding: Binding, graph: Path) -> None:
        trt = self._trt = binding.module
        self._names_targets = binding.flavour == "rtx"
        self._logger = _logger(trt)
        self._builder = trt.Builder(self._logger)
        flag = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        self._network = self._builder.create_network(flag)
        self._kept: list[Array] = []
        self._exact = True
        parser = trt.OnnxParser(self._network, self._logger)
        if not parser.parse_from_file(str(graph)):
            errors = (str(parser.get_error(n)) for n in range(parser.num_errors))
            raise PrepareError(f"{graph.name}: TensorRT cannot read it: {'; '.join(errors)}.")

    def fill(self, tensors: Mapping[str, Tensor], family: Family) -> None:
        """Replace the inputs of the experts' weights by constants."""
        inputs = [self._network.get_input(n) for n in range(self._network.num_inputs)]
        places = self._places({tensor.name for tensor in inputs if EXPERTS.fullmatch(tensor.name)})
        for tensor in inputs:
            if found := EXPERTS.fullmatch(tensor.name):
                given = constant(tensors, int(found[1]), found[2], family)
                weight = self._constant(given, family.element)
                for layer, at in places[tensor.name]:
                    layer.set_input(at, weight)
                self._network.remove_tensor(tensor)

    def decompose(self) -> None:
        """Allow the builder to decompose attention: no fused kernel exists in float32 or for long
        caches."""
        for n in range(self._network.num_layers):
            layer = self._network.get_layer(n)
            if layer.type == self._trt.LayerType.ATTENTION_INPUT:
                layer.__class__ = self._trt.IAttentionInputLayer
                layer.attention.decomposable = True

    def _places(self, names: set[str]) -> dict[str, list[tuple[Any, int]]]:
        """The builder's layers that read these tensors, and at which of their inputs."""
        found: dict[str, list[tuple[Any, int]]] = {name: [] for name in names}
        for n in range(self._network.num_layers):
            layer = self._network.get_layer(n)
            for at in range(layer.num_inputs):
                tensor = layer.get_input(at)
                if tensor is not None and tensor.name in names:
                    found[tensor.name].append((layer, at))
        return found

    def _constant(self, given: Constant, element: Element) -> object:
        trt, network = self._trt, self._network
        self._exact &= given.exact
        values = network.add_constant(given.shape, self._weights(given.values, given.type))
        if given.scales is None:
            return values.get_output(0)
        scales = network.add_constant(
            given.scales.shape, self._weights(given.scales, given.scale_type)
        )
        # The block follows from the scales' shape; with `block_shape` set, large layers fail.
        scaled = network.add_dequantize(
            values.get_output(0), scales.get_output(0), getattr(trt.DataType, DATA_TYPE[element])
        )
        return scaled.get_output(0)

    def _weights(self, values: Array, type: str) -> object:
        self._kept.append(values)
        count = values.size * (2 if type == "FP4" else 1)
        return self._trt.Weights(getattr(self._trt.DataType, type), values.ctypes.data, count)

    def listing(self, slots: int, chunk: int) -> Listing:
        """`slots`: the rows of a decode step. `chunk`: the tokens of a prefill step."""
        network = self._network
        kinds = Counter(str(network.get_layer(n).type) for n in range(network.num_layers))
        inputs = tuple(_port(network.get_input(n)) for n in range(network.num_inputs))
        return Listing(
            layers={kind.rpartition(".")[2]: count for kind, count in sorted(kinds.items())},
            inputs=inputs,
            outputs=tuple(_port(network.get_output(n)) for n in range(network.num_outputs)),
            profiles=tuple(
                {port.name: tuple(_shape(port.shape, *each) for each in bounds) for port in inputs}
                for bounds in _profiles(slots, chunk)
            ),
            exact=self._exact,
        )

    def built(self, listing: Listing, targets: tuple[str, ...]) -> memoryview:
        """The bytes of the plan, for exactly these targets: without them the builder accepts a
        network that no target can run."""
        config = self._builder.create_builder_config()
        if self._names_targets:
            config.num_compute_capabilities = len(targets)
            for n, target in enumerate(targets):
                found = getattr(self._trt.ComputeCapability, target.upper())
                config.set_compute_capability(found, n)
        for bounds in listing.profiles:
            profile = self._builder.create_optimization_profile()
            for name, shapes in bounds.items():
                profile.set_shape(name, *shapes)
            config.add_optimization_profile(profile)
        plan = self._builder.build_serialized_network(self._network, config)
        if plan is None:
            raise PrepareError(
                f"TensorRT: cannot compile it for {', '.join(targets)}: {self._logger.last()}"
            )
        return memoryview(plan).cast("B")


def _profiles(slots: int, chunk: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Batch and tokens (the minimum, the optimum, the maximum) for decode, then for prefill."""
    step, most = (slots, 1), (1, chunk)
    return (step, step, step), ((1, 1), most, most)


def _shape(shape: tuple[int, ...], batch: int, tokens: int) -> tuple[int, ...]:
    """The shape with its open axes filled: the first is the batch, the second the new tokens."""
    return tuple((batch, tokens)[axis] if size < 0 else size for axis, size in enumerate(shape))


def _port(tensor: object) -> Port:
    name, kind, shape = (getattr(tensor, field) for field in ("name", "dtype", "shape"))
    return Port(name, str(kind).rpartition(".")[2], tuple(shape))


def _logger(trt: ModuleType):  # type: ignore[no-untyped-def]  # its base is only known when it runs
    class Logger(trt.ILogger):  # type: ignore[misc, name-defined]  # likewise
        """Collects errors; drops all other messages."""

        def __init__(self) -> None:
            super().__init__()
            self.errors: list[str] = []

        def log(self, severity: object, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.errors.append(message)

        def last(self) -> str:
            return self.errors[-1] if self.errors else "no reason given."

    return Logger()
