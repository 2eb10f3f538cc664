"""The GPU check without a GPU: it says so; its comparisons run over stand-ins that compute.

What a GPU computes is not shown here, only that each step asks, compares and tells as it should.
About 12 s on one core.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from scripts import gpu_steps
from scripts.gpu_check import here_or_why, main, tried
from scripts.gpu_steps import Differs, Here, compared
from scripts.gpu_weights import read_through
from tests.support.double import rtx as double
from tests.support.tensorrt import named_binding, real_names
from trt_responses.errors import StartupError
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.graph.weights import dense
from trt_responses.prepare.pipeline import BuildTools
from trt_responses.prepare.tensorrt.build import Compiler
from trt_responses.prepare.tensorrt.job import CompileResult
from trt_responses.prepare.tensorrt.network import Listing

if TYPE_CHECKING:
    from trt_responses.engines.tensorrt.executor import Executor, Ids, Rows
    from trt_responses.prepare.checkpoint.safetensors import Array
    from trt_responses.prepare.tensorrt.job import CompileJob
    from trt_responses.tokens.vocabulary import Vocabulary

ASKED = {
    "ICudaEngine": "create_execution_context create_runtime_config num_io_tensors get_tensor_name "
    "get_tensor_shape get_tensor_dtype get_tensor_mode create_engine_inspector "
    "device_memory_size_v2 get_device_memory_size_for_profile_v2",
    "IExecutionContext": "set_optimization_profile_async set_tensor_address set_input_shape "
    "execute_async_v3",
    "IRuntimeConfig": "cuda_graph_strategy dynamic_shapes_kernel_specialization_strategy",
    "DynamicShapesKernelSpecializationStrategy": "LAZY EAGER",
    "CudaGraphStrategy": "DISABLED WHOLE_GRAPH_CAPTURE",
    "EngineInspector": "get_engine_information",
    "LayerInformationFormat": "JSON",
    "Runtime": "deserialize_cuda_engine get_engine_validity",
    "TensorIOMode": "INPUT",
}


@dataclass
class Written:
    """In a compiler's place: a plan that names its graph, as the stand-in wants it."""

    checkpoint: Path = field(default_factory=Path)

    def __call__(self, job: CompileJob) -> CompileResult:
        self.checkpoint = Path(job.checkpoint)
        Path(job.plan).write_text(job.graph)
        return CompileResult(0.1, 1, len(job.graph), "0" * 64, Listing({}, (), (), (), exact=True))

    def expert(self, name: str) -> Array:
        _, layer, projection = name.split(".")
        return dense(open_checkpoint(self.checkpoint), int(layer), projection, "float32")


@pytest.fixture
def here(tmp_path: Path, vocabulary: Vocabulary) -> Here:
    gpu, compiler = double.Gpu(), Written()
    wish = gpu_steps.WISH
    rtx = double.Rtx(gpu, compiler.expert, slots=wish.slots, chunk=wish.chunk)
    kinds = SimpleNamespace(LAZY=0, EAGER=1)
    module = SimpleNamespace(**vars(rtx.module()), DynamicShapesKernelSpecializationStrategy=kinds)
    tools = BuildTools(vocabulary)
    compiling = Compiler(named_binding, compiler, present=lambda: None)
    return Here(module, gpu, "sm120", tmp_path, tools, compiling)  # type: ignore[arg-type]  # they stand in for modules


def test_without_a_driver_every_step_says_so_and_nothing_has_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gpu = double.Gpu(error=double.Error.cudaErrorInsufficientDriver)
    assert main([], lambda folder: here_or_why(folder, lambda: gpu)) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["step"] for line in lines] == ["here", *gpu_steps.STEPS, "soak"]
    for line in lines[1:]:
        assert line["status"] == "not run"
        assert "cudaErrorInsufficientDriver" in line["why"]


def test_on_a_gpu_that_is_no_target_only_the_runtime_s_verdict_is_asked(
    here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    hopper = here._replace(target="sm90")
    assert main(["machine", "models", "soak"], lambda folder: hopper) == 0
    _, machine, *others = map(json.loads, capsys.readouterr().out.splitlines())
    assert machine["status"] == "ok"
    assert machine["figures"]["plan for sm120"] == "EngineValidity.VALID: no reason given"
    assert [line["status"] for line in others] == ["not run", "not run"]
    assert "this GPU is sm90" in others[0]["why"]


def test_what_is_asked_of_the_real_binding_is_there() -> None:
    for name, members in ASKED.items():
        assert [m for m in members.split() if m not in real_names()[name]] == [], name


@pytest.mark.slow  # 240 MB, and 6 s
def test_the_comparing_steps_pass_over_a_runtime_that_computes_the_graph(
    here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attention", "overflow"], lambda folder: here) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    figures = lines[1]["figures"]
    assert figures["largest logit difference"] < 1e-4
    assert figures["that agree"] == figures["greedy choices"] == 64
    assert lines[2]["figures"]["overflow"][0] > 0


def test_weights_are_read_back_through_the_identity(here: Here) -> None:
    source = open_checkpoint(gpu_steps.checkpoint_of(here, "mxfp4", 1))
    for projection in ("gate_up", "down"):
        assert read_through(here, source, "f32", projection) == 0.0


@pytest.mark.slow  # 30 MB, and 2 s
def test_a_soak_counts_and_loses_no_memory(here: Here) -> None:
    figures = gpu_steps.soak(here, 0.5, "f32")
    assert figures["lost"] == 0
    assert isinstance(figures["joined"], int)
    assert figures["joined"] > 0


class Wrong:
    """An executor whose logits are a little off, and whose first choice is another one."""

    def __init__(self, right: Executor) -> None:
        self._right = right
        self.slots, self.length, self.chunk = right.slots, right.length, right.chunk
        self.top, self.vocabulary = right.top, right.vocabulary

    def decode(self, ids: Ids, lens: Ids, needed: range | None = None) -> Rows:
        return self._off(self._right.decode(ids, lens))

    def prefill(self, slot: int, ids: Ids, at: int) -> Rows:
        return self._off(self._right.prefill(slot, ids, at))

    def close(self) -> None: ...

    def _off(self, rows: Rows) -> Rows:
        ids, logits = rows.ids[:, ::-1], rows.logits
        return rows._replace(ids=ids, logits=lambda row: logits(row) + np.float32(0.25))


@pytest.mark.slow  # 180 MB, and 3 s
def test_a_wrong_runtime_is_found_out(here: Here) -> None:
    source = gpu_steps.checkpoint_of(here, "f32", 1)
    ours, theirs = gpu_steps.executors(here, source, "f32")
    figures = compared(Wrong(ours), theirs, steps=2)
    assert figures["largest logit difference"] == pytest.approx(0.25, abs=1e-3)
    assert (figures["that agree"], figures["greedy choices"]) == (0, 8)
    assert figures["first that does not, at step"] == 0
    with pytest.raises(Differs):
        gpu_steps.judge(figures, "f32", figures)


def test_a_step_that_fails_or_takes_too_long_is_told_and_the_next_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails() -> dict[str, object]:
        raise StartupError("no room")

    def differs() -> dict[str, object]:
        raise Differs({"largest": 9})

    def late() -> dict[str, object]:
        raise TimeoutError("it took longer than 300 s")

    assert not tried("a", fails, 300)
    assert not tried("b", differs, 300)
    assert not tried("c", late, 300)
    assert tried("d", lambda: {"ms": 1}, 300)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["status"] for line in lines] == ["failed", "differs", "failed", "ok"]
    assert lines[0]["why"] == "no room"
    assert lines[1]["figures"] == {"largest": 9}
