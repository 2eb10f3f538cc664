"""Stand-ins for TensorRT-RTX's runtime and for CUDA, with the names of both and nothing else.

A plan is a text file that names a graph; a context computes it with onnxruntime on the very
addresses that it is given. Device memory is host memory, full of rubbish at first, and every
address is looked up: what reaches outside an allocation, or misses a profile, is an error.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import onnxruntime

TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
STREAM = 77


class Error(Enum):
    cudaSuccess = 0
    cudaErrorMemoryAllocation = 2
    cudaErrorInsufficientDriver = 35


class Kind(Enum):
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2


class Attribute(Enum):
    cudaDevAttrComputeCapabilityMajor = 75
    cudaDevAttrComputeCapabilityMinor = 76


DONE = Error.cudaSuccess


@dataclass
class Gpu:
    """`cuda.bindings.runtime`, of a GPU that is host memory."""

    free: int = 1 << 34
    count: int = 1
    error: Error = DONE
    memory: dict[int, Any] = field(default_factory=dict)
    cudaError_t = Error
    cudaMemcpyKind = Kind
    cudaDeviceAttr = Attribute

    def holds(self, address: int, size: int) -> bool:
        return any(at <= address and address + size <= at + len(m) for at, m in self.memory.items())

    def cudaGetDeviceCount(self) -> tuple[Error, int | None]:
        return self.error, None if self.error != DONE else self.count

    def cudaSetDevice(self, device: int) -> tuple[Error]:
        return (DONE,)

    def cudaDeviceGetAttribute(self, attr: Attribute, device: int) -> tuple[Error, int]:
        return DONE, {"Major": 12, "Minor": 0}[attr.name[-5:]]

    def cudaMemGetInfo(self) -> tuple[Error, int, int]:
        return DONE, self.free, 1 << 35

    def cudaMalloc(self, size: int) -> tuple[Error, int | None]:
        if size > self.free:
            return Error.cudaErrorMemoryAllocation, None
        rubbish = np.full(size, 0x7F, np.uint8)
        address: int = rubbish.ctypes.data
        self.memory[address] = rubbish
        return DONE, address

    def cudaFree(self, devPtr: int) -> tuple[Error]:
        del self.memory[devPtr]
        return (DONE,)

    def cudaMemsetAsync(self, devPtr: int, value: int, count: int, stream: int) -> tuple[Error]:
        assert self.holds(devPtr, count)
        ctypes.memset(devPtr, value, count)
        return (DONE,)

    def cudaMemcpyAsync(
        self, dst: int, src: int, count: int, kind: Kind, stream: int
    ) -> tuple[Error]:
        on_device = dst if kind == Kind.cudaMemcpyHostToDevice else src
        assert self.holds(on_device, count), "a copy reaches outside the device's memory"
        ctypes.memmove(dst, src, count)
        return (DONE,)

    def cudaStreamCreate(self) -> tuple[Error, int]:
        return DONE, STREAM

    def cudaStreamSynchronize(self, stream: int) -> tuple[Error]:
        assert stream == STREAM
        return (DONE,)

    def cudaStreamDestroy(self, stream: int) -> tuple[Error]:
        return (DONE,)


class EngineValidity(Enum):
    VALID = 0
    SUBOPTIMAL = 1
    INVALID = 2


class EngineInvalidityDiagnostics(IntEnum):
    VERSION_MISMATCH = 1
    UNSUPPORTED_CC = 2


class CudaGraphStrategy(Enum):
    DISABLED = 0
    WHOLE_GRAPH_CAPTURE = 1


class TensorIOMode(Enum):
    INPUT = 1
    OUTPUT = 2


class DataType(Enum):
    FLOAT = 0
    INT64 = 8


class Logger:
    ERROR = 1

    def __init__(self, min_severity: int) -> None: ...


class IRuntimeCache:
    def __init__(self) -> None:
        self._held = b"compiled here"

    def serialize(self) -> bytes:
        return self._held

    def deserialize(self, blob: bytes) -> bool:
        if not blob.startswith(b"compiled"):
            return False
        self._held = blob + b" again"
        return True


class IRuntimeConfig:
    cuda_graph_strategy = CudaGraphStrategy.DISABLED

    def create_runtime_cache(self) -> IRuntimeCache:
        return IRuntimeCache()

    def set_runtime_cache(self, cache: IRuntimeCache) -> bool:
        return True


class Rtx:
    """`tensorrt_rtx_bindings`, beside a GPU. `weight` gives what a real plan has inside."""

    EngineValidity = EngineValidity
    EngineInvalidityDiagnostics = EngineInvalidityDiagnostics
    CudaGraphStrategy = CudaGraphStrategy
    TensorIOMode = TensorIOMode
    DataType = DataType
    Logger = Logger
    IRuntimeCache = IRuntimeCache
    IRuntimeConfig = IRuntimeConfig

    def __init__(self, gpu: Gpu, weight: Callable[[str], Any], *, slots: int, chunk: int) -> None:
        profiles = ((slots, slots), (1, 1)), ((1, 1), (1, chunk))
        self.strategies: list[CudaGraphStrategy] = []
        self.verdict: tuple[EngineValidity, int] = (EngineValidity.VALID, 0)
        self.Runtime = lambda logger: Runtime(self, gpu, weight, profiles)

    def module(self) -> ModuleType:
        return SimpleNamespace(**{n: getattr(self, n) for n in dir(self) if n[0].isupper()})  # type: ignore[return-value]  # it stands in for one


Profiles = tuple[tuple[tuple[int, int], tuple[int, int]], ...]
"""For each, the least and the most rows, and the least and the most steps."""


class Runtime:
    def __init__(
        self, rtx: Rtx, gpu: Gpu, weight: Callable[[str], Any], profiles: Profiles
    ) -> None:
        self._rtx, self._gpu, self._weight, self._profiles = rtx, gpu, weight, profiles

    def get_engine_validity(self, buffer: bytes) -> tuple[EngineValidity, int]:
        return self._rtx.verdict

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> ICudaEngine | None:
        if not serialized_engine.endswith(b".onnx"):
            return None
        import onnxruntime

        session = onnxruntime.InferenceSession(serialized_engine.decode())
        return ICudaEngine(self._rtx, self._gpu, session, self._weight, self._profiles)


class ICudaEngine:
    def __init__(
        self,
        rtx: Rtx,
        gpu: Gpu,
        session: onnxruntime.InferenceSession,
        weight: Callable[[str], Any],
        profiles: Profiles,
    ) -> None:
        self._rtx, self._gpu, self._session, self._profiles = rtx, gpu, session, profiles
        inputs, outputs = session.get_inputs(), session.get_outputs()
        self._weights = {
            n.name: np.ascontiguousarray(weight(n.name), np.float32)
            for n in inputs
            if n.name.startswith("layers.")
        }
        self._modes = {n.name: TensorIOMode.INPUT for n in inputs} | {
            n.name: TensorIOMode.OUTPUT for n in outputs
        }
        self._nodes = {n.name: n for n in (*inputs, *outputs) if n.name not in self._weights}

    @property
    def num_io_tensors(self) -> int:
        return len(self._nodes)

    def get_tensor_name(self, index: int) -> str:
        names: list[str] = list(self._nodes)
        return names[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return self._modes[name]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(n if isinstance(n, int) else -1 for n in self._nodes[name].shape)

    def get_tensor_dtype(self, name: str) -> DataType:
        found = self._nodes[name].type
        return DataType.FLOAT if found == "tensor(float)" else DataType.INT64

    def create_runtime_config(self) -> IRuntimeConfig:
        return IRuntimeConfig()

    def create_execution_context(self, runtime_config: IRuntimeConfig) -> IExecutionContext:
        self._rtx.strategies.append(runtime_config.cuda_graph_strategy)
        return IExecutionContext(self)


class IExecutionContext:
    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine
        self._bounds = engine._profiles[0]
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        self._bounds = self._engine._profiles[profile_index]
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        known = self._engine.get_tensor_shape(name)
        bounds = iter(self._bounds)
        for size, wanted in zip(shape, known, strict=True):
            least, most = next(bounds) if wanted < 0 else (wanted, wanted)
            if not least <= size <= most:
                return False
        self._shapes[name] = tuple(shape)
        return True

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._addresses[name] = memory
        return name in self._engine._nodes

    def execute_async_v3(self, stream_handle: int) -> bool:
        assert stream_handle == STREAM
        engine = self._engine
        binding = engine._session.io_binding()
        for name, weight in engine._weights.items():
            binding.bind_input(name, "cpu", 0, np.float32, weight.shape, weight.ctypes.data)
        rows, steps = next(
            (s[0], s[1]) for n, s in self._shapes.items() if n in ("input_ids", "hidden")
        )
        for name, node in engine._nodes.items():
            if engine._modes[name] == TensorIOMode.INPUT:
                shape = self._shapes[name]
            else:
                sizes = {"B": rows, "S": steps}
                shape = tuple(sizes.get(n, n) for n in node.shape)
            kind, address = TYPES[node.type], self._addresses[name]
            size = int(np.prod(shape)) * np.dtype(kind).itemsize
            assert engine._gpu.holds(address, size), f"{name} reaches outside the device's memory"
            is_input = engine._modes[name] == TensorIOMode.INPUT
            bind = binding.bind_input if is_input else binding.bind_output
            bind(name, "cpu", 0, kind, shape, address)
        engine._session.run_with_iobinding(binding)
        return True
