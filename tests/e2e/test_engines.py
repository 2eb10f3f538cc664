"""One suite over every engine that is present: what the seam promises, asked of each.

Budget: 30 s on one core, most of it llama.cpp loading the random model three times.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.double.llm import Double
from tests.support.double.results import Script as Said
from tests.support.engine_claims import CLAIMS, CONTEXT, SLOTS, Bench
from trt_responses.engine.llamacpp.engine import LlamaCppEngine
from trt_responses.engine.scripted.engine import Script, ScriptedEngine
from trt_responses.engine.trtllm.engine import TrtLlmEngine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.double.words import SamplingParams
    from tests.support.graphs import Graph
    from trt_responses.engine.base import Engine, GenerateOptions
    from trt_responses.tokens.vocabulary import Vocabulary


def echo(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    """A stand-in for a model: what it says depends on the prompt and on nothing else."""
    return Script(
        tuple((prompt_ids[n % len(prompt_ids)] + n,) for n in range(CONTEXT)), cached_tokens=0
    )


def scripted() -> Engine:
    return ScriptedEngine(echo, context_tokens=CONTEXT, max_batch=SLOTS)


def trtllm_double() -> Engine:
    """The TensorRT-LLM adapter over the stand-in for its package."""

    def echoed(prompt_ids: Sequence[int], params: SamplingParams) -> Said:
        groups = ((prompt_ids[n % len(prompt_ids)] + n,) for n in range(CONTEXT))
        return Said(tuple(groups))

    arguments = {"max_seq_len": CONTEXT, "max_batch_size": SLOTS, "max_num_tokens": CONTEXT}
    package = Double(echoed).package
    return TrtLlmEngine(Path("checkpoint"), arguments, package=package, environment={})


@pytest.fixture(params=["scripted", "llamacpp", "trtllm-double", "onnx"], scope="module")
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    make = trtllm_double if request.param == "trtllm-double" else scripted
    if request.param == "llamacpp":
        gguf: Path = request.getfixturevalue("random_gguf")

        def make() -> Engine:
            return LlamaCppEngine(gguf, context_tokens=CONTEXT, slots=SLOTS, threads=1)

    if request.param == "onnx":
        graph: Graph = request.getfixturevalue("random_graph")
        vocabulary: Vocabulary = request.getfixturevalue("vocabulary")

        def make() -> Engine:
            return graph.engine(vocabulary)

    with asyncio.Runner() as runner:
        bench = Bench(request.param, make(), make, runner)
        runner.run(bench.engine.start())
        yield bench
        runner.run(bench.engine.stop(5))


globals().update(CLAIMS)
