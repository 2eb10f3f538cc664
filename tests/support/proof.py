"""Hosts for `trt-responses prove`: one with the stand-in for TensorRT-LLM and a driver's tool, and
a server over gRPC beside it. The model counts in Harmony, follows guides, and has the numbers of
our own forward pass where many are wanted."""

from __future__ import annotations

import asyncio
import os
import sysconfig
import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scripts.checkpoints import TINY, Recipe, write_checkpoint
from scripts.tiny_adapter import write_adapter
from tests.support.double.environment import environment
from tests.support.double.results import Script
from tests.support.tokens import vocabulary
from trt_responses.prepare.checkpoint.forward import Reference
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.double.words import SamplingParams

WORDS = 150
MANY = 10
"""So many log probabilities are wanted for the numbers alone."""
STEP_S = 0.0005
NVIDIA_SMI = "#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 9.0, 81559, 81000, 580.65.06'\n"
PACKAGE = """
import sys
from tests.support.double.llm import Double
from tests.support.double.worker import Worker
from tests.support.proof import STEP_S, Model
double = Double(Model({checkpoint!r}), gpus=1, worker=lambda: Worker(step_s=STEP_S))
sys.modules.update(double.modules())
"""


@cache
def ids(text: str) -> tuple[int, ...]:
    return tuple(vocabulary().encoding.encode(text, allowed_special="all"))


class Model:
    """Counts from a number that its prompt gives it, or writes what a guide wants."""

    def __init__(self, checkpoint: str) -> None:
        self._reference = cache(lambda: Reference(open_checkpoint(Path(checkpoint))))

    def __call__(self, prompt_ids: Sequence[int], params: SamplingParams) -> Script:
        if params.guided_decoding is not None:
            wanted = "yes, déjà" in repr(vars(params.guided_decoding))
            answer = '"yes, déjà"' if wanted else '{"answer": "yes"}'
            return Script(tuple((i,) for i in (*ids(answer), CONTROL.return_)))
        if params.logprobs and params.logprobs >= MANY:
            return self._numbers(prompt_ids, params.logprobs)
        seed = sum(n * i for n, i in enumerate(prompt_ids, 1)) % 9000
        words = ids(" ".join(map(str, range(seed, seed + WORDS))))
        found = [*ids("<|channel|>final<|message|>"), *words]
        if found[0] in (params.bad_token_ids or ()):
            found[0] += 1
        end = CONTROL.call if self._has_tool(prompt_ids) else CONTROL.return_
        return Script(tuple((i,) for i in (*found, end)))

    def _numbers(self, prompt_ids: Sequence[int], count: int) -> Script:
        row = self._reference().logprobs(list(prompt_ids))[0]
        best = [int(i) for i in np.argsort(-row)[:count]]
        return Script(((best[0],),), tops={i: float(row[i]) for i in best})

    def _has_tool(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the prompt is the build's own about the weather, whose answer is a call."""
        text = vocabulary().text(list(prompt_ids))
        return "type get_weather = (_: {\ncity: string,\n}) => any" in text and "Use the" in text


def checkpoint_of(directory: Path) -> Path:
    """A gpt-oss of one layer with random weights, with what TensorRT-LLM wants beside them."""
    write_checkpoint(directory, Recipe(replace(TINY, layers=1), "mxfp4"))
    (directory / "tokenizer.json").write_text("{}")
    (directory / "tokenizer_config.json").write_text('{"eos_token": "<|return|>"}')
    return directory


def adapter_of(checkpoint: Path, directory: Path) -> Path:
    return write_adapter(directory, open_checkpoint(checkpoint).architecture)


def gpu_host(directory: Path, checkpoint: Path) -> dict[str, str]:
    """The variables of a host that has a GPU and TensorRT-LLM, as far as this server can see."""
    python = environment(directory / "theirs")
    packages = next((directory / "theirs").glob("lib/python*/site-packages"))
    (packages / "tensorrt_llm.py").write_text(PACKAGE.format(checkpoint=str(checkpoint)))
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (packages / "scripts").symlink_to(Path(__file__).parents[2] / "scripts")
    (directory / "bin").mkdir()
    tool = directory / "bin" / "nvidia-smi"
    tool.write_text(NVIDIA_SMI)
    tool.chmod(0o755)
    path = f"{tool.parent}:{os.environ['PATH']}"
    return {"PATH": path, "TRT_RESPONSES_TRTLLM_PYTHON": str(python)}


@contextmanager
def grpc_host(checkpoint: Path) -> Iterator[int]:
    """The port of a server in the place of `trtllm-serve --grpc`, on a thread of its own."""
    from tests.support.double.llm import Double
    from tests.support.grpc_server import llm_of, served
    from tests.support.grpc_servicers import Servicer

    up = threading.Event()
    found: list[int] = []
    ends: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        over = asyncio.Event()
        ends.append((asyncio.get_running_loop(), over))
        double = Double(Model(str(checkpoint)), version="main")
        sizes = {"max_seq_len": 8192, "max_num_tokens": 8192, "max_batch_size": 16}
        llm = llm_of(double, guided_decoding_backend="llguidance", **sizes)
        async with served(Servicer(llm)) as port:
            found.append(port)
            up.set()
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert up.wait(60)
        yield found[0]
    finally:
        for loop, over in ends:
            loop.call_soon_threadsafe(over.set)
        thread.join()
