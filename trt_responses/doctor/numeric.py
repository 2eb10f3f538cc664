"""Compares an engine's log probabilities for a fixed prompt with the NumPy forward pass.

The caller passes the engine and its checkpoint; the engine is used through its seam only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from trt_responses.doctor.check import Check
from trt_responses.engine import Engine, Gathered, GenerateOptions
from trt_responses.errors import ApiError, StartupError
from trt_responses.prepare.checkpoint.forward import Reference
from trt_responses.prepare.checkpoint.open import Checkpoint
from trt_responses.tokens.vocabulary import Vocabulary

Likeliest = Sequence[tuple[int, float]]

NAME = "deep"
COUNTED = " ".join(f"{n} and" for n in range(100))
THOUGHT = "<|channel|>analysis<|message|>The user wants a sum. The numbers are 4"
PROMPT = f"<|start|>user<|message|>{COUNTED}<|end|><|start|>assistant{THOUGHT}"
"""A prompt of 319 ids, longer than the attention window of 128, so that a wrong window shows. The
answer depends on tokens far back, so every part of the forward pass matters."""
LIKELIEST = 20
BOUND = 0.3
"""The largest accepted difference. The demo's file differs by about 0.1; without the window, an
expert or YaRN it differs by over 3."""
DEADLINE_S = 120.0


def deep_check(engine: Engine, checkpoint: Checkpoint, vocabulary: Vocabulary) -> Check:
    """Whether an engine computes the same as the NumPy forward pass."""
    prompt = vocabulary.encoding.encode(PROMPT, allowed_special="all")
    try:
        top = asyncio.run(likeliest(engine, prompt))
    except (ApiError, StartupError, TimeoutError) as error:
        return Check(NAME, "fault", f"the engine gave no log probabilities ({error})")
    # `truncate`: llama.cpp rounds YaRN's range outwards.
    return compared(top, Reference(checkpoint, truncate=True), prompt)


def compared(top: Likeliest, reference: Reference, prompt: Sequence[int]) -> Check:
    """The check of an engine's likeliest ids against the reference."""
    expected = reference.logprobs(prompt)[0]
    away = max((abs(float(expected[n]) - logprob) for n, logprob in top), default=float("inf"))
    text = (
        f"the demo's {len(top)} likeliest log probabilities after {len(prompt)} ids differ by up "
        f"to {away:.3f} from the NumPy forward pass, limit {BOUND}"
    )
    if away <= BOUND:
        return Check(NAME, "ok", text)
    return Check(NAME, "fault", text, "reinstall the engine's library, then `make engine`")


async def likeliest(engine: Engine, prompt: Sequence[int]) -> Likeliest:
    """An engine's likeliest next ids with their log probabilities."""
    async with asyncio.timeout(DEADLINE_S):
        await engine.start()
        try:
            sink = Gathered()
            options = GenerateOptions(
                max_tokens=1, stop_ids=(), temperature=0.0, logprobs=LIKELIEST
            )
            engine.generate(prompt, options, sink)
            await sink.last
            return sink.logprobs[0].top if sink.logprobs else ()
        finally:
            await engine.stop(5.0)
