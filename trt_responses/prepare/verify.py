"""Verifies an engine with one request: load it, get a greedy answer to a fixed prompt, stop it.
Uses the engine interface; works with any engine.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import NamedTuple

from trt_responses.engine import Engine, Gathered, GenerateOptions
from trt_responses.errors import ApiError
from trt_responses.prepare.faults import PrepareError
from trt_responses.tokens.control import CONTROL, VOCABULARY_SIZE
from trt_responses.tokens.vocabulary import Vocabulary

PROMPT = "<|start|>user<|message|>Hello<|end|><|start|>assistant"
MAX_TOKENS = 16
DEADLINE_S = 600.0
"""Seconds to load and answer: a large model on a slow disk needs minutes."""


class Question(NamedTuple):
    """A prompt, the ids that end its answer, and the size of the vocabulary."""

    prompt: Sequence[int]
    stop_ids: tuple[int, ...]
    vocabulary_size: int


def harmony_question(vocabulary: Vocabulary) -> Question:
    """The question for a model with Harmony."""
    prompt = vocabulary.encoding.encode(PROMPT, allowed_special="all")
    return Question(prompt, (CONTROL.return_, CONTROL.call), VOCABULARY_SIZE)


async def answered(engine: Engine, question: Question) -> tuple[int, ...]:
    """The ids of the greedy answer. Raises a `PrepareError` for a failure."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await _answered(engine, question)
    except TimeoutError:
        raise PrepareError(
            f"verify: no answer within {DEADLINE_S:.0f} s, expected {MAX_TOKENS} tokens; check "
            "that the machine has enough memory for the model."
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
        raise PrepareError("verify: found a log probability that is not finite, expected a number.")
    if not sink.token_ids:
        raise PrepareError("verify: found no token, expected an answer.")
    if not all(0 <= n < question.vocabulary_size for n in sink.token_ids):
        raise PrepareError("verify: found an id outside the vocabulary, expected only its ids.")
    return tuple(sink.token_ids)
