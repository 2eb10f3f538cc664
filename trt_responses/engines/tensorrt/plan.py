"""One compiled plan on TensorRT-RTX, with a context for each profile.

Not run on a GPU yet; see `tensorrt_rtx`. Uses the binding's names; allocates no memory.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.engines.tensorrt.executor import ExecutorFault
from trt_responses.errors import StartupError
from trt_responses.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import ModuleType

    from trt_responses.engines.tensorrt.cuda import Cuda

logger = logging.getLogger(__name__)

ELEMENT_BYTES = {"FLOAT": 4, "HALF": 2, "BF16": 2, "INT64": 8}
DECODE, PREFILL = 0, 1
"""The profiles of a plan."""


class Tensor(NamedTuple):
    """An input or output of a plan."""

    is_input: bool
    shape: tuple[int, ...]
    element_bytes: int

    def bytes_of(self, rows: int) -> int:
        """The size in bytes for this number of slots, with one token each."""
        return math.prod(self.filled(rows, 1)) * self.element_bytes

    def filled(self, rows: int, steps: int) -> tuple[int, ...]:
        """The shape for this number of slots and tokens."""
        open_sizes = iter((rows, steps))
        return tuple(next(open_sizes) if size < 0 else size for size in self.shape)


class Plan:
    """One loaded plan, with a context for each profile."""

    def __init__(
        self,
        trt: ModuleType,
        runtime: object,
        folder: Path,
        name: str,
        caches: Path | None,
        cuda: Cuda,
    ) -> None:
        self._name, self._cuda = name, cuda
        self._engine = _loaded(trt, runtime, folder / f"{name}.plan")
        self.tensors = dict(_tensors(trt, self._engine))
        self._kept = None if caches is None else caches / f"{name}.cache"
        self._contexts = self._load(trt)

    def caches(self) -> dict[str, Tensor]:
        return {name: t for name, t in self.tensors.items() if name.startswith("past_")}

    def run(self, profile: int, sizes: tuple[int, int], addresses: Mapping[str, int]) -> None:
        context = self._contexts[profile]
        for name, address in addresses.items():
            tensor = self.tensors[name]
            if tensor.is_input:
                self._did(context.set_input_shape(name, tensor.filled(*sizes)), name)
            self._did(context.set_tensor_address(name, address), name)
        self._did(context.execute_async_v3(self._cuda.stream), "the step")

    def close(self) -> None:
        """Close the plan, and save the runtime's compiled code for the next start."""
        self._contexts.clear()
        if self._kept is None:
            return
        try:
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._kept, memoryview(self._cache.serialize()))
        except OSError as error:
            logger.warning("%s cannot be written (%s).", self._kept, error.strerror)

    def _load(self, trt: ModuleType):  # type: ignore[no-untyped-def]  # the binding has no types
        """A context for each profile. Only decode has the same shape and addresses each time, so
        only decode gets a CUDA graph."""
        graphs = trt.CudaGraphStrategy
        configs = [self._engine.create_runtime_config() for _ in (DECODE, PREFILL)]  # type: ignore[attr-defined]  # likewise
        self._cache = configs[0].create_runtime_cache()
        if self._kept is not None and self._kept.is_file():
            self._cache.deserialize(self._kept.read_bytes())  # another GPU's is refused, harmlessly
        contexts = []
        for profile, strategy in enumerate((graphs.WHOLE_GRAPH_CAPTURE, graphs.DISABLED)):
            configs[profile].set_runtime_cache(self._cache)
            configs[profile].cuda_graph_strategy = strategy
            contexts.append(self._context(configs[profile], profile))
        return contexts

    def _context(self, config: object, profile: int):  # type: ignore[no-untyped-def]  # likewise
        context = self._engine.create_execution_context(config)  # type: ignore[attr-defined]  # likewise
        if context is None:
            raise StartupError(f"{self._name}.plan: not enough GPU memory for its working memory.")
        self._did(context.set_optimization_profile_async(profile, self._cuda.stream), "its profile")
        self._cuda.wait()
        return context

    def _did(self, done: object, what: str) -> None:
        if not done:
            raise ExecutorFault(f"TensorRT refuses {what} of {self._name}.plan.")


def _loaded(trt: ModuleType, runtime: object, path: Path) -> object:
    """The plan on this GPU. Raises with the runtime's reasons if it cannot run there."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StartupError(f"{path} cannot be read ({error.strerror}).") from None
    validity, bits = runtime.get_engine_validity(data)  # type: ignore[attr-defined]  # likewise
    if validity not in (trt.EngineValidity.VALID, trt.EngineValidity.SUBOPTIMAL):
        raise StartupError(
            f"{path.name} cannot run on this GPU ({reasons(trt, int(bits))}): prepare the engine "
            "again, with this GPU among its TARGETS."
        )
    engine: object = runtime.deserialize_cuda_engine(data)  # type: ignore[attr-defined]  # likewise
    if engine is None:
        raise StartupError(f"{path.name} cannot be loaded by TensorRT: prepare the engine again.")
    return engine


def reasons(trt: ModuleType, bits: int) -> str:
    """The names of the set bits."""
    members = trt.EngineInvalidityDiagnostics.__members__.items()
    return (
        ", ".join(name for name, member in members if bits & int(member.value)) or "no reason given"
    )


def _tensors(trt: ModuleType, engine):  # type: ignore[no-untyped-def]  # likewise
    for n in range(engine.num_io_tensors):
        name = engine.get_tensor_name(n)
        element = str(engine.get_tensor_dtype(name)).rpartition(".")[2]
        is_input = engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT
        yield name, Tensor(is_input, tuple(engine.get_tensor_shape(name)), ELEMENT_BYTES[element])
