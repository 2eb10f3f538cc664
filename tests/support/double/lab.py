"""A GPU host and a laptop as values, a model that answers as it should, and what was started."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from scripts.checkpoints import TINY, Recipe, write_checkpoint
from tests.support.double.llm import Double
from tests.support.double.results import Script
from trt_responses.engines.trtllm.engine import TrtLlmEngine
from trt_responses.prepare.hardware import Gpu, Hardware
from trt_responses.prepare.pipeline import BuildTools
from trt_responses.prepare.progress import Silent
from trt_responses.prepare.trtllm.build import GpuHost, prepare
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tests.support.double.words import SamplingParams
    from trt_responses.engine import Engine
    from trt_responses.prepare.pipeline import Built
    from trt_responses.prepare.trtllm.plan import TrtLlmOptions
    from trt_responses.tokens.vocabulary import Vocabulary

GIB = 1 << 30
H100 = Gpu("NVIDIA H100 80GB HBM3", 90, 80 * GIB, 79 * GIB, "575.57.08")
GPU_HOST = Hardware((H100,), None, "1.2.1", True, 500 * GIB)
LAPTOP = Hardware((), "nvidia-smi was not found", None, False, 50 * GIB)


def tiny_checkpoint(directory: Path) -> Path:
    """A checkpoint that TensorRT-LLM would take: one layer, MXFP4 experts, all of it zeros."""
    write_checkpoint(directory, Recipe(replace(TINY, layers=1), "mxfp4", sparse=True))
    (directory / "tokenizer.json").write_text("{}")
    (directory / "tokenizer_config.json").write_text('{"eos_token": "<|return|>"}')
    return directory


class Lab:
    """A GPU host with the stand-in for its package, and what was started on it."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        hardware: Hardware = GPU_HOST,
        script: Callable[[Sequence[int], SamplingParams], Script] | None = None,
    ) -> None:
        ticks = count()
        self.starts: list[Mapping[str, str]] = []
        self.told: list[str] = []
        self.double = Double(script or Model(vocabulary), gpus=8)
        self.tools = BuildTools(
            vocabulary, progress=Told(self.told), clock=lambda: float(next(ticks))
        )
        self.host = GpuHost(lambda: hardware, self.start)

    def prepare(
        self, checkpoint: Path, engines_dir: Path, name: str, options: TrtLlmOptions
    ) -> Built:
        return prepare(checkpoint, engines_dir, name, self.tools, options, self.host)

    def start(
        self,
        checkpoint: Path,
        arguments: Mapping[str, object],
        variables: Mapping[str, str],
        end_id: int | None = None,
    ) -> Engine:
        environment: dict[str, str] = {}
        self.starts.append(environment)
        package = self.double.package
        return TrtLlmEngine(
            checkpoint,
            arguments,
            variables=variables,
            end_id=end_id,
            package=package,
            environment=environment,
        )


class Told(Silent):
    def __init__(self, told: list[str]) -> None:
        self._told = told

    def phase(self, name: str, total_bytes: int = 0) -> None:
        self._told.append(name)


class Model:
    """Answers questions up to `<|return|>`, calls a tool where there is one, follows the canary."""

    def __init__(self, vocabulary: Vocabulary, *, drifts: bool = False) -> None:
        self._tool = vocabulary.encoding.encode("type get_weather", allowed_special="all")
        self._drifts = count() if drifts else None

    def __call__(self, prompt_ids: Sequence[int], params: SamplingParams) -> Script:
        if params.guided_decoding is not None:
            return Script(((9, CONTROL.return_),))
        drift = next(self._drifts) if self._drifts is not None else 0
        answer = (100 + drift, 101, 102)
        calls = all(token_id in prompt_ids for token_id in self._tool)
        return Script((answer, (CONTROL.call if calls else CONTROL.return_,)))
