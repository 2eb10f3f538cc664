"""Warms up and measures a started engine: every graph size, and fixed greedy prompts.
Uses the engine interface and a clock; works with any engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from trt_responses.engine import Chunk, Engine, Gathered, GenerateOptions
from trt_responses.errors import ApiError
from trt_responses.frozen import dataclass
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.trtllm.profiles import graph_sizes
from trt_responses.tokens.control import CONTROL
from trt_responses.tokens.vocabulary import Vocabulary

STOPS = (CONTROL.return_, CONTROL.call)
BATCH_TOKENS = 16
ANSWER_TOKENS = 512
STOP_S = 60.0
SYSTEM = (
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
    "Knowledge cutoff: 2024-06\n\nReasoning: low\n\n# Valid channels: analysis, commentary, final. "
    "Channel must be included for every message.{more}<|end|>"
)
CALLS = "\nCalls to these tools must go to the commentary channel: 'functions'."
TOOL = (
    "<|start|>developer<|message|># Tools\n\n## functions\n\nnamespace functions {\n\n"
    "// The weather of a city.\ntype get_weather = (_: {\ncity: string,\n}) => any;\n\n"
    "} // namespace functions<|end|>"
)
PROMPTS = {
    "answer": SYSTEM.format(more="")
    + "<|start|>user<|message|>What is the capital of France?<|end|><|start|>assistant",
    "call": SYSTEM.format(more=CALLS)
    + TOOL
    + "<|start|>user<|message|>What is the weather in Paris? Use the tool.<|end|>"
    + "<|start|>assistant",
}
"""The fixed prompts: the answer to the first ends with `<|return|>`, the second with `<|call|>`."""


class Questions(NamedTuple):
    """The prompts for an engine, as ids of its model's dialect."""

    fixed: Mapping[str, Sequence[int]]
    """The fixed prompts, by name."""
    numbered: Callable[[int, int], Sequence[int]]
    """The prompt by place in a batch and size of the batch; all differ."""
    stop_ids: tuple[int, ...]
    name_of: Callable[[int], str]
    """The spelling of a stop id."""


def harmony_questions(vocabulary: Vocabulary) -> Questions:
    """The questions for gpt-oss."""
    fixed = {name: _ids(vocabulary, prompt) for name, prompt in PROMPTS.items()}
    return Questions(
        fixed,
        lambda n, size: _ids(vocabulary, _numbered(n, size)),
        STOPS,
        vocabulary.control_name,
    )


def numbered_text(n: int, size: int) -> str:
    """The text of a prompt of a batch."""
    return f"Request {n} of {size}: count from {n}."


@dataclass(frozen=True, slots=True)
class Batch:
    """A measured batch of concurrent requests, from the first one to the last chunk."""

    size: int
    tokens: int
    seconds: float
    first_token_s: float

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Greedy:
    """The greedy answer to a fixed prompt."""

    prompt: str
    token_ids: tuple[int, ...]
    ends_with: str
    """The spelling of the stop id, or `length`."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the engine, and its answers."""

    seconds: float
    batches: tuple[Batch, ...]
    answers: tuple[Greedy, ...]
    free_bytes: tuple[int, ...]
    """The free bytes of each GPU after the start."""
    ignores: tuple[str, ...] = ()
    """Sampling options that the engine accepts and ignores."""


class Timed(Gathered):
    """A sink that records the time of the first ids."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self.first_s: float | None = None
        self._clock = clock

    def push(self, chunk: Chunk, /) -> None:
        if chunk.token_ids and self.first_s is None:
            self.first_s = self._clock()
        super().push(chunk)


async def measured(
    engine: Engine,
    questions: Questions,
    clock: Callable[[], float],
    *,
    begin: Callable[[str], object],
    phases: tuple[str, ...],
    free_bytes: Callable[[], tuple[int, ...]],
) -> Start:
    """Start an engine, send the questions, stop it, and return the measurements. With a second
    phase it also runs every graph size."""
    begin(phases[0])
    began = clock()
    await engine.start()
    seconds = round(clock() - began, 3)
    try:
        for phase in phases[1:]:
            begin(phase)
        sizes = graph_sizes(engine.limits().max_batch) if phases[1:] else []
        batches = []
        for size in sizes:
            prompts = [questions.numbered(n, size) for n in range(size)]
            batches.append(await _batch(engine, prompts, clock))
        answers = await greedy(engine, questions)
        free = free_bytes()
        ignores = tuple(sorted(engine.limits().ignores))
    finally:
        await engine.stop(STOP_S)
    return Start(seconds, tuple(batches), answers, free, ignores)


async def greedy(engine: Engine, questions: Questions) -> tuple[Greedy, ...]:
    """The greedy answers to the fixed prompts."""
    found = []
    for name, prompt in questions.fixed.items():
        sink = Gathered()
        options = GenerateOptions(ANSWER_TOKENS, questions.stop_ids, temperature=0.0)
        last = await _ended(engine, prompt, options, sink)
        ends_with = "length" if last.stop_id is None else questions.name_of(last.stop_id)
        found.append(Greedy(name, tuple(sink.token_ids), ends_with))
    return tuple(found)


async def _batch(
    engine: Engine, prompts: Sequence[Sequence[int]], clock: Callable[[], float]
) -> Batch:
    """Measure a batch once. All prompts differ, so that no cache shortens the work."""
    options = GenerateOptions(BATCH_TOKENS, (), temperature=0.0)
    began, sinks = clock(), [Timed(clock) for _ in prompts]
    pairs = zip(prompts, sinks, strict=True)
    await asyncio.gather(*(_ended(engine, prompt, options, sink) for prompt, sink in pairs))
    ended = clock()
    first = min((sink.first_s for sink in sinks if sink.first_s is not None), default=ended)
    tokens = sum(len(sink.token_ids) for sink in sinks)
    return Batch(len(sinks), tokens, round(ended - began, 6), round(first - began, 6))


async def _ended(
    engine: Engine, prompt: Sequence[int], options: GenerateOptions, sink: Gathered
) -> Chunk:
    try:
        engine.generate(prompt, options, sink)
    except ApiError as error:
        raise PrepareError(f"warm-up: the engine refused a prompt ({error}).") from None
    last = await sink.last
    if last.finish == "error":
        raise PrepareError(f"warm-up: the engine failed ({last.error}), expected an answer.")
    return last


def _numbered(n: int, size: int) -> str:
    question = numbered_text(n, size)
    return SYSTEM.format(more="") + f"<|start|>user<|message|>{question}<|end|><|start|>assistant"


def _ids(vocabulary: Vocabulary, prompt: str) -> list[int]:
    ids: list[int] = vocabulary.encoding.encode(prompt, allowed_special="all")
    return ids
