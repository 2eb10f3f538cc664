"""The parts of CUDA that an executor needs: memory, copies, one stream, and the GPU's type.

Uses `cuda-bindings` and checks every call's status. No engine here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from trt_responses.engines.tensorrt.executor import ExecutorFault
from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

DEVICE = 0
NEEDS_EXTRA = (
    "TensorRT plans need cuda-bindings, which is not installed: "
    "pip install 'trt-responses[tensorrt]'."
)


def runtime() -> ModuleType:
    """The binding of the CUDA runtime."""
    try:
        return importlib.import_module("cuda.bindings.runtime")
    except ModuleNotFoundError:
        raise StartupError(NEEDS_EXTRA) from None


class Cuda:
    """One GPU and one stream. `close` frees all allocated memory."""

    def __init__(self, module: ModuleType) -> None:
        self._cuda = module
        status, count = module.cudaGetDeviceCount()
        if status != module.cudaError_t.cudaSuccess or not count:
            raise StartupError(
                f"TensorRT plans run on an NVIDIA GPU with its driver, and there is none "
                f"({_name(status)}): serve the graph on the CPU instead, prepared with KIND=onnx."
            )
        self._memory: list[int] = []
        self._did(module.cudaSetDevice(DEVICE))
        self.stream = int(self._did(module.cudaStreamCreate()))

    def target(self) -> str:
        """The GPU's compute capability in the form of engine names: `sm120`."""
        kinds = self._cuda.cudaDeviceAttr
        major, minor = (
            self._did(self._cuda.cudaDeviceGetAttribute(kind, DEVICE))
            for kind in (
                kinds.cudaDevAttrComputeCapabilityMajor,
                kinds.cudaDevAttrComputeCapabilityMinor,
            )
        )
        return f"sm{major}{minor}"

    def free_bytes(self) -> int:
        status, free, _ = self._cuda.cudaMemGetInfo()
        self._did((status, free))
        return int(free)

    def zeros(self, size_bytes: int) -> int:
        """Allocate zeroed memory. Returns its address."""
        address = int(self._did(self._cuda.cudaMalloc(size_bytes)))
        self._memory.append(address)
        self._did(self._cuda.cudaMemsetAsync(address, 0, size_bytes, self.stream))
        return address

    def put(self, address: int, array: Array) -> None:
        """Copy an array to the GPU; it must not change until `wait`."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._copy(address, array.ctypes.data, array.nbytes, kind)

    def get(self, array: Array, address: int) -> None:
        """Copy from the GPU into an array, which is valid after `wait`."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._copy(array.ctypes.data, address, array.nbytes, kind)

    def wait(self) -> None:
        """Wait for all copies and computations."""
        self._did(self._cuda.cudaStreamSynchronize(self.stream))

    def close(self) -> None:
        while self._memory:
            self._cuda.cudaFree(self._memory.pop())
        self._cuda.cudaStreamDestroy(self.stream)

    def _copy(self, to: int, source: int, size_bytes: int, kind: object) -> None:
        self._did(self._cuda.cudaMemcpyAsync(to, source, size_bytes, kind, self.stream))

    def _did(self, answer: tuple[object, ...]) -> int:
        """The result of a call. Raises if its status is not success."""
        status, *given = answer
        if status != self._cuda.cudaError_t.cudaSuccess:
            raise ExecutorFault(f"CUDA reports {_name(status)}.")
        return given[0] if given else 0  # type: ignore[return-value]  # handles and numbers only


def _name(status: object) -> str:
    return str(getattr(status, "name", status))
