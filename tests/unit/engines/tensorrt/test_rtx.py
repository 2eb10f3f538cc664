"""The TensorRT-RTX executor without a GPU: over a stand-in that has the real binding's names.

What the stand-in has, the real one has, and what the executor asks for, the stand-in has: so every
name is there. That a GPU computes the same is not shown here. Budget: 6 s on one core.
"""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from enum import EnumType
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pytest

from scripts.checkpoints import TINY, Recipe, write_checkpoint
from tests.support.double import rtx as double
from tests.support.gather import generated
from tests.support.graphs import Graph, link_names, planned, written
from tests.support.tensorrt import RTX, real_names, with_the_real_binding
from trt_responses.engine import GenerateOptions
from trt_responses.engines.tensorrt.cuda import Cuda, runtime
from trt_responses.engines.tensorrt.engine import TensorRtEngine
from trt_responses.engines.tensorrt.executor import ExecutorFault
from trt_responses.engines.tensorrt.rtx import RtxExecutor
from trt_responses.errors import StartupError
from trt_responses.prepare.files import GRAPH

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trt_responses.engines.tensorrt.executor import Executor
    from trt_responses.tokens.vocabulary import Vocabulary

SLOTS, LENGTH, CHUNK = 3, 96, 16
WITH_THE_EXTRA = pytest.mark.skipif(find_spec(RTX) is None, reason="the extra is not installed")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    folder = tmp_path_factory.mktemp("rtx")
    recipe = Recipe(replace(TINY, layers=3, hidden=32), "f32")
    checkpoint = write_checkpoint(folder / "checkpoint", recipe)
    return compiled(planned(checkpoint, folder, slots=SLOTS, length=LENGTH, chunk=CHUNK))


def compiled(graph: Graph) -> Graph:
    """With a plan of the stand-in's kind for each file."""
    written(graph)
    for name in link_names(graph.plan):
        path = graph.folder / GRAPH / f"{name}.onnx"
        (graph.folder / f"{name}.plan").write_text(str(path))
    return graph


def executor_over(
    graph: Graph, gpu: double.Gpu, rtx: double.Rtx | None = None, caches: Path | None = None
) -> RtxExecutor:
    rtx = rtx or rtx_of(graph, gpu)
    return RtxExecutor(
        graph.folder,
        link_names(graph.plan),
        slots=graph.plan.slots,
        chunk=graph.plan.chunk,
        cuda=Cuda(gpu),  # type: ignore[arg-type]  # it stands in for a module
        caches=caches,
        binding=rtx.module(),
    )


def rtx_of(graph: Graph, gpu: double.Gpu) -> double.Rtx:
    return double.Rtx(gpu, graph.expert, slots=graph.plan.slots, chunk=graph.plan.chunk)


@pytest.mark.slow  # 75 MB: sessions of onnxruntime
def test_it_computes_what_onnxruntime_computes(graph: Graph) -> None:
    gpu = double.Gpu()
    ours, theirs = executor_over(graph, gpu), graph.executor()
    assert (ours.length, ours.top, ours.vocabulary) == (LENGTH, theirs.top, theirs.vocabulary)
    noise = np.random.default_rng(2)
    for slot, size in ((2, 16), (0, 5), (2, 9)):
        at = 16 if size == 9 else 0
        ids = noise.integers(0, 199_000, size)
        assert_same(ours.prefill(slot, ids, at), theirs.prefill(slot, ids, at))
    lens = np.array([5, 0, 25])
    for _ in range(3):
        ids = noise.integers(0, 199_000, SLOTS)
        assert_same(ours.decode(ids, lens), theirs.decode(ids, lens))
        lens += 1
    ours.close()
    assert not gpu.memory, "device memory was not freed"


def assert_same(ours: object, theirs: object) -> None:
    for name in ("values", "lse"):
        one, other = (getattr(rows, name) for rows in (ours, theirs))
        np.testing.assert_allclose(one, other, atol=1e-4)
    assert ours.ids[:, 0].tolist() == theirs.ids[:, 0].tolist()  # type: ignore[attr-defined]
    for row in range(len(theirs.lse)):  # type: ignore[attr-defined]
        np.testing.assert_allclose(ours.logits(row), theirs.logits(row), atol=1e-4)  # type: ignore[attr-defined]


@pytest.mark.slow  # 75 MB: sessions of onnxruntime
def test_the_engine_over_it_says_what_it_says_over_onnxruntime(
    graph: Graph, vocabulary: Vocabulary
) -> None:
    """On its own thread, three at once, one of them in chunks."""
    prompts = [[n, *range(300, 300 + size)] for n, size in enumerate((5, 40, 9))]
    options = GenerateOptions(12, (), temperature=0.0)

    async def told(make: Callable[[], Executor]) -> list[list[int]]:
        engine = TensorRtEngine(make, vocabulary, slots=SLOTS, context_tokens=LENGTH, top=64)
        await engine.start()
        sinks = await asyncio.gather(*(generated(engine, p, options) for p in prompts))
        await engine.stop(30)
        return [sink.token_ids for sink in sinks]

    gpu = double.Gpu()
    ours = asyncio.run(told(lambda: executor_over(graph, gpu)))
    assert ours == asyncio.run(told(graph.executor))
    assert [len(ids) for ids in ours] == [12] * 3
    assert not gpu.memory


@pytest.mark.slow  # 75 MB: sessions of onnxruntime
def test_a_chunk_that_overflows_an_expert_is_told(tmp_path: Path) -> None:
    """One token many times over goes to one expert of sixteen."""
    one_of_many = replace(TINY, layers=2, hidden=32, experts=16, experts_per_token=1)
    checkpoint = write_checkpoint(tmp_path / "checkpoint", Recipe(one_of_many, "f32"))
    graph = compiled(planned(checkpoint, tmp_path, slots=1, length=128, chunk=128))
    ours = executor_over(graph, double.Gpu())
    same = np.full(100, 7, np.int64)
    told = [executor.prefill(0, same, 0).overflow for executor in (ours, graph.executor())]
    assert told == [100 - 64] * 2
    assert ours.prefill(0, same[:64], 0).overflow <= 0


@pytest.mark.slow  # 75 MB: sessions of onnxruntime
def test_only_the_decode_step_is_captured(graph: Graph) -> None:
    gpu = double.Gpu()
    rtx = rtx_of(graph, gpu)
    executor_over(graph, gpu, rtx)
    captured, plain = (
        double.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE,
        double.CudaGraphStrategy.DISABLED,
    )
    assert rtx.strategies == [captured, plain] * len(link_names(graph.plan))


def test_what_was_compiled_for_this_gpu_is_kept_and_a_strangers_is_not(
    graph: Graph, tmp_path: Path
) -> None:
    (tmp_path / "head.cache").write_bytes(b"of another GPU")
    for expected in (b"compiled here", b"compiled here again"):
        executor_over(graph, double.Gpu(), caches=tmp_path).close()
        assert (tmp_path / "head.cache").read_bytes() == expected
    assert sorted(p.stem for p in tmp_path.iterdir()) == sorted(link_names(graph.plan))


def test_a_plan_that_the_gpu_cannot_run_is_refused_with_the_reasons(graph: Graph) -> None:
    rtx = rtx_of(graph, gpu := double.Gpu())
    rtx.verdict = (double.EngineValidity.INVALID, 3)
    with pytest.raises(StartupError, match=r"VERSION_MISMATCH, UNSUPPORTED_CC\): prepare"):
        executor_over(graph, gpu, rtx)


def test_too_little_gpu_memory_is_refused(graph: Graph) -> None:
    with pytest.raises(StartupError, match="Free some, or serve a smaller model"):
        executor_over(graph, double.Gpu(free=10))
    with pytest.raises(ExecutorFault, match="cudaErrorMemoryAllocation"):
        executor_over(graph, double.Gpu(free=10_000))


def test_a_chunk_that_no_profile_takes_is_a_fault(graph: Graph) -> None:
    gpu = double.Gpu()
    narrow = double.Rtx(gpu, graph.expert, slots=SLOTS, chunk=CHUNK - 1)
    executor = executor_over(graph, gpu, narrow)
    with pytest.raises(ExecutorFault, match=r"refuses input_ids of embed\.plan"):
        executor.prefill(0, np.zeros(CHUNK, np.int64), 0)


def test_the_gpu_is_named_as_targets_are() -> None:
    assert Cuda(double.Gpu()).target() == "sm120"  # type: ignore[arg-type]  # as above


def test_without_a_driver_the_start_is_refused_with_the_way_out() -> None:
    gone = double.Gpu(error=double.Error.cudaErrorInsufficientDriver)
    with pytest.raises(StartupError, match=r"cudaErrorInsufficientDriver\): serve .* KIND=onnx"):
        Cuda(gone)  # type: ignore[arg-type]  # as above


def test_the_real_cuda_without_a_driver_is_refused_likewise() -> None:
    pytest.importorskip("cuda.bindings", reason="the extra is not installed")
    module = runtime()
    status, count = module.cudaGetDeviceCount()
    if status == module.cudaError_t.cudaSuccess and count:
        assert Cuda(module).target().startswith("sm")
    else:
        with pytest.raises(StartupError, match="there is none"):
            Cuda(module)


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@WITH_THE_EXTRA
@pytest.mark.parametrize(
    "name",
    [
        *("CudaGraphStrategy", "DataType", "EngineInvalidityDiagnostics", "EngineValidity"),
        *("ICudaEngine", "IExecutionContext", "IRuntimeCache", "IRuntimeConfig", "Logger"),
        *("Runtime", "TensorIOMode"),
    ],
)
def test_the_stand_in_has_no_name_that_tensorrt_lacks(name: str) -> None:
    enum_words = public(int) | {"name", "value"}
    assert public(getattr(double, name)) - enum_words <= {*real_names()[name]}


@WITH_THE_EXTRA
def test_the_reasons_of_the_real_binding_are_spelled_out() -> None:
    with_the_real_binding("""
from trt_responses.engines.tensorrt.plan import reasons
members = real.EngineInvalidityDiagnostics.__members__
every = sum(member.value for member in members.values())
assert reasons(real, every) == ", ".join(members)
assert reasons(real, 0) == "no reason given"
""")


def test_the_stand_in_has_no_call_that_cuda_lacks_and_takes_the_same() -> None:
    real = pytest.importorskip("cuda.bindings.runtime", reason="the extra is not installed")
    for name in public(double.Gpu) - {"count", "error", "free", "holds", "memory"}:
        ours, theirs = getattr(double.Gpu, name), getattr(real, name)
        if isinstance(ours, EnumType):
            assert set(ours.__members__) <= set(theirs.__members__)
        else:
            taken = list(inspect.signature(ours).parameters)[1:]
            assert taken == list(inspect.signature(theirs).parameters)
