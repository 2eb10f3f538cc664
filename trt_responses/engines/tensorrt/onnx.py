"""The executor on onnxruntime: runs the plans' source graph on the CPU.

Every buffer is bound by address, so that a step copies no weights and no caches. A range of slots
is an address inside the caches, so idle slots at either end cost nothing. Files and tensors only:
no requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trt_responses.engines.tensorrt.executor import ExecutorFault, Rows
from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import onnxruntime
    from numpy.typing import NDArray

    from trt_responses.engines.tensorrt.executor import Ids

    Array = NDArray[np.generic]
    Arrays = Mapping[str, Array]

ELEMENTS: Mapping[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
}
FAULTS = ("EPFail", "Fail", "InvalidArgument", "NotImplemented", "RuntimeException")
LOAD_FAULTS = (*FAULTS, "InvalidGraph", "InvalidProtobuf", "NoModel", "NoSuchFile")
NEEDS_EXTRA = (
    "This engine needs onnxruntime, which is not installed: pip install 'trt-responses[tensorrt]'."
)


class Tensor(NamedTuple):
    """An input or output of a file: its name, its numpy type, and its sizes or their names."""

    name: str
    type: type[np.generic]
    shape: tuple[int | str, ...]

    def zeros(self, slots: int) -> Array:
        """An array of zeros for a tensor whose first size alone is open."""
        return np.zeros((slots, *map(int, self.shape[1:])), self.type)


class OnnxExecutor:
    """The executor of one graph. `names`: the files of the chain in order; `experts` returns a
    weight by input name."""

    def __init__(
        self,
        graph: Path,
        names: Sequence[str],
        experts: Callable[[str], Array],
        *,
        slots: int,
        chunk: int,
        threads: int,
    ) -> None:
        self._faults = _faults(FAULTS)
        links = [_Link(_session(graph / f"{name}.onnx", threads)) for name in names]
        self._embed, self._groups, self._head = links[0], links[1:-1], links[-1]
        self.slots, self.chunk = slots, chunk
        self.top, self.vocabulary = (self._head.width(name) for name in ("values", "logits"))
        caches = [tensor for group in self._groups for tensor in group.caches()]
        self.length = int(caches[0].shape[2]) - 1
        self._caches = {t.name: t.zeros(slots) for t in caches}
        self._experts = {
            tensor.name: np.ascontiguousarray(experts(tensor.name), tensor.type)
            for group in self._groups
            for tensor in group.experts()
        }
        hidden = self._embed.outputs[0]
        most = max(slots, chunk) * int(hidden.shape[2])
        self._hidden = [np.zeros(most, hidden.type) for _ in range(2)]
        self._size = int(hidden.shape[2])
        self._overflow = np.zeros(1, np.int64)
        self._rows = {t.name: t.zeros(slots) for t in self._head.outputs}

    def decode(self, ids: Ids, lens: Ids, needed: range | None = None) -> Rows:
        place = needed or range(self.slots)
        part = slice(place.start, place.stop)
        return self._computed(place, ids[part].reshape(-1, 1), lens[part], part)

    def prefill(self, slot: int, ids: Ids, at: int) -> Rows:
        lens = np.full(1, at, np.int64)
        rows = self._computed(range(slot, slot + 1), ids.reshape(1, -1), lens, slice(1))
        return rows._replace(values=rows.values[:1], ids=rows.ids[:1], lse=rows.lse[:1])

    def close(self) -> None:
        for link in (self._embed, *self._groups, self._head):
            link.bindings.clear()

    def _stays(self, group: _Link, place: range) -> tuple[dict[str, Array], dict[str, Array]]:
        """The inputs and outputs of a group of layers with the same address in every step of these
        slots."""
        inputs = {tensor.name: self._experts[tensor.name] for tensor in group.experts()}
        caches = {t.name: self._caches[t.name][place.start : place.stop] for t in group.caches()}
        outputs = {name.replace("past", "present", 1): part for name, part in caches.items()}
        return inputs | caches, outputs

    def _computed(self, place: range, ids: Ids, lens: Ids, part: slice) -> Rows:
        """Run the chain over these slots, and write the rows into this part of the result."""
        rows, steps = ids.shape
        here, there = (
            whole[: ids.size * self._size].reshape(rows, steps, self._size)
            for whole in self._hidden
        )
        ids, lens = np.ascontiguousarray(ids), np.ascontiguousarray(lens)
        last, info = np.full(rows, steps - 1, np.int64), self._rows
        overflow = 0
        try:
            self._embed.run(place, {"input_ids": ids}, {"hidden": here})
            for group in self._groups:
                if place not in group.bindings:
                    group.bind(place, *self._stays(group, place))
                outputs = {"hidden_out": there, "overflow": self._overflow}
                group.run(place, {"hidden": here, "lens": lens}, outputs)
                here, there = there, here
                overflow = max(overflow, int(self._overflow[0]))
            outputs = {name: whole[part] for name, whole in info.items()}
            self._head.run(place, {"hidden": here, "last": last}, outputs)
        except self._faults as error:
            raise ExecutorFault(f"onnxruntime reports: {error}") from None
        logits = info["logits"]
        return Rows(
            np.asarray(info["values"], np.float32),
            np.asarray(info["ids"], np.int64),
            np.asarray(info["lse"], np.float32),
            overflow,
            lambda row: logits[row].astype(np.float32),
        )


class _Link:
    """One loaded file of the chain, with a binding for each range of slots."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self.bindings: dict[range, onnxruntime.IOBinding] = {}
        self.inputs = [_tensor(info) for info in session.get_inputs()]
        self.outputs = [_tensor(info) for info in session.get_outputs()]

    def width(self, output: str) -> int:
        return next(int(t.shape[-1]) for t in self.outputs if t.name == output)

    def caches(self) -> Iterator[Tensor]:
        return (t for t in self.inputs if t.name.startswith("past_"))

    def experts(self) -> Iterator[Tensor]:
        return (t for t in self.inputs if t.name.startswith("layers."))

    def bind(self, place: range, inputs: Arrays, outputs: Arrays) -> None:
        """Bind inputs and outputs for all later runs of these slots."""
        binding = self.bindings.setdefault(place, self._session.io_binding())
        for name, array in inputs.items():
            _at(binding.bind_input, name, array)
        for name, array in outputs.items():
            _at(binding.bind_output, name, array)

    def run(self, place: range, inputs: Arrays, outputs: Arrays) -> None:
        self.bind(place, inputs, outputs)
        self._session.run_with_iobinding(self.bindings[place])


def _at(bind: Callable[..., None], name: str, array: Array) -> None:
    bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def _tensor(info: onnxruntime.NodeArg) -> Tensor:
    if info.type not in ELEMENTS:
        raise StartupError(
            f"The graph's {info.name} has type {info.type}, which onnxruntime does not support on "
            "the CPU: prepare the engine with KIND=onnx, which is float32."
        )
    return Tensor(info.name, ELEMENTS[info.type], tuple(info.shape))


def _session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise StartupError(NEEDS_EXTRA) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # patterns need a fixed shape, and chunks vary
    options.log_severity_level = 3
    # Threads that spin between steps would take the server's CPU time.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except _faults(LOAD_FAULTS) as error:
        raise StartupError(f"{path} cannot be loaded: {error}") from None


def _faults(names: Sequence[str]) -> tuple[type[Exception], ...]:
    """onnxruntime's error classes, which have no common base."""
    try:
        from onnxruntime.capi import onnxruntime_pybind11_state as state
    except ModuleNotFoundError:
        raise StartupError(NEEDS_EXTRA) from None
    return tuple(getattr(state, name) for name in names)
