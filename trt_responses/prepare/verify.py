"""One real request to an engine: it loads, answers a fixed prompt greedily, and stops.

Knows the engine seam and the prompt; knows no concrete engine and no file.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.engine import Gathered, GenerateOptions
from trt_responses.errors import ApiError
from trt_responses.prepare.faults import PrepareError
from trt_responses.tokens.control import CONTROL, VOCABULARY_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.engine import Engine
    from trt_responses.tokens.vocabulary import Vocabulary

PROMPT = "<|start|>user<|message|>Hello<|end|><|start|>assistant"
MAX_TOKENS = 16
DEADLINE_S = 600.0
"""Seconds for loading and an answer: a large model on a slow disk takes minutes."""


class Question(NamedTuple):
    """A prompt, the ids that end its answer, and how many ids there are."""

    prompt: Sequence[int]
    stop_ids: tuple[int, ...]
    vocabulary_size: int


def harmony_question(vocabulary: Vocabulary) -> Question:
    """The question to a model that speaks Harmony."""
    prompt = vocabulary.encoding.encode(PROMPT, allowed_special="all")
    return Question(prompt, (CONTROL.return_, CONTROL.call), VOCABULARY_SIZE)


async def answered(engine: Engine, question: Question) -> tuple[int, ...]:
    """The ids of the greedy answer, or a sentence about what went wrong."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await _answered(engine, question)
    except TimeoutError:
        raise PrepareError(
            f"verify: found no answer after {DEADLINE_S:.0f} s, expected {MAX_TOKENS} tokens; "
            "see whether the machine has the memory for the model."
        ) from None


async def _answered(engine: Engine, question: Question) -> tuple[int, ...]:
    await engine.start()
    try:
        sink = Gathered()
        options = GenerateOptions(
            max_tokens=MAX_TOKENS,
            stop_ids=question.stop_ids,
            temperature=0.0,
            logprobs=1 if engine.limits().max_logprobs else None,
        )
        engine.generate(question.prompt, options, sink)
        last = await sink.last
    except ApiError as error:
        raise PrepareError(f"verify: found {error.message!r}, expected an answer.") from None
    finally:
        await engine.stop(10.0)
    if last.finish == "error":
        raise PrepareError(f"verify: found {last.error!r}, expected an answer.")
    if any(not math.isfinite(entry.logprob) for entry in sink.logprobs):
        raise PrepareError("verify: found a log probability that is no number, expected an answer.")
    if not sink.token_ids:
        raise PrepareError("verify: found no token, expected an answer.")
    if not all(0 <= n < question.vocabulary_size for n in sink.token_ids):
        raise PrepareError("verify: found an id outside the vocabulary, expected only its ids.")
    return tuple(sink.token_ids)
