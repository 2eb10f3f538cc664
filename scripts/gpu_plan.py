"""One compiled plan on a GPU by itself: every buffer its own, run several times, and timed.

For `gpu_check` only: the engine's executor shares buffers and keeps caches, and shows neither.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from numpy.typing import NDArray

    from trt_responses.engines.tensorrt.cuda import Cuda

TYPES = {"FLOAT": np.float32, "HALF": np.float16, "BF16": np.uint16, "INT64": np.int64}


class LoadedPlan:
    """`sizes` fills the open axes: slots and tokens. `kernels` and `graph` are names of the
    runtime's strategies."""

    def __init__(
        self,
        trt: ModuleType,
        cuda: Cuda,
        path: Path,
        profile: int = 0,
        sizes: tuple[int, int] = (1, 1),
        *,
        kernels: str = "LAZY",
        graph: str = "DISABLED",
    ) -> None:
        self._cuda, self._sizes = cuda, sizes
        began = time.perf_counter()
        runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        self.engine = runtime.deserialize_cuda_engine(path.read_bytes())
        if self.engine is None:
            raise StartupError(f"{path.name} cannot be loaded by TensorRT.")
        config = self.engine.create_runtime_config()
        kinds = trt.DynamicShapesKernelSpecializationStrategy
        config.dynamic_shapes_kernel_specialization_strategy = getattr(kinds, kernels)
        config.cuda_graph_strategy = getattr(trt.CudaGraphStrategy, graph)
        self._context = self.engine.create_execution_context(config)
        self._context.set_optimization_profile_async(profile, cuda.stream)
        cuda.wait()
        self._bind(trt)
        self.load_s = time.perf_counter() - began

    def _bind(self, trt: ModuleType) -> None:
        """A cache's output is its input, at the same address."""
        self.addresses: dict[str, int] = {}
        self.arrays: dict[str, NDArray[np.generic]] = {}
        for n in range(self.engine.num_io_tensors):
            name = self.engine.get_tensor_name(n)
            kind = str(self.engine.get_tensor_dtype(name)).rpartition(".")[2]
            shape = tuple(
                self._sizes[axis] if size < 0 else size
                for axis, size in enumerate(self.engine.get_tensor_shape(name))
            )
            self.arrays[name] = np.zeros(shape, TYPES[kind])
            past = name.replace("present", "past", 1)
            if past not in self.addresses:
                self.addresses[name] = self._cuda.zeros(max(1, self.arrays[name].nbytes))
            self._context.set_tensor_address(name, self.addresses.get(name, self.addresses[past]))
            if self.engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
                self._context.set_input_shape(name, shape)

    def put(self, name: str, values: NDArray[np.generic]) -> None:
        self.arrays[name] = np.ascontiguousarray(values, self.arrays[name].dtype)
        self._cuda.put(self.addresses[name], self.arrays[name])
        self._cuda.wait()

    def get(self, name: str) -> NDArray[np.generic]:
        self._cuda.get(self.arrays[name], self.addresses[name])
        self._cuda.wait()
        return self.arrays[name]

    def run(self, times: int = 1) -> float:
        """Seconds that one of them took."""
        began = time.perf_counter()
        for _ in range(times):
            if not self._context.execute_async_v3(self._cuda.stream):
                raise StartupError("TensorRT refuses the step.")
        self._cuda.wait()
        return (time.perf_counter() - began) / times

    def settled(self, times: int = 50) -> float:
        """Seconds a step takes once kernels are chosen and clocks are up."""
        self.run(10)
        return self.run(times)

    def memory_bytes(self) -> int:
        buffers = sum(math.prod(a.shape) * a.itemsize for a in self.arrays.values())
        return buffers + int(self.engine.device_memory_size_v2)
