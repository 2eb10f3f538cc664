"""The promises of the engine seam, one claim each, on the loaded engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace

from trt_responses.engine import Chunk, Gathered, Handle
from trt_responses.errors import ApiError
from trt_responses.prove.bench import Bench, Loaded
from trt_responses.prove.canaries import GREEDY, ids
from trt_responses.prove.claims import Failed, Figures, check

LONG = replace(GREEDY, max_tokens=2000, temperature=1.0)
OTHER = [*range(800, 840)]
MOST = 64
CLAIM_S = 120.0


async def _greedy(on: Loaded) -> bool:
    await on.gathered(ids(), GREEDY)  # a cold prompt is computed in another order
    first, second = [(await on.gathered(ids(), GREEDY)).token_ids for _ in range(2)]
    return first == second != []


async def _length(on: Loaded) -> bool:
    for count in (GREEDY.max_tokens, 0):
        sink = await on.gathered(ids(), replace(GREEDY, max_tokens=count))
        if len(sink.token_ids) != count or sink.last.result().finish != "length":
            return False
    return True


async def _prompts(on: Loaded) -> bool:
    one, other = [(await on.gathered(prompt, GREEDY)).token_ids for prompt in (ids(), OTHER)]
    return one != other


async def _refused(on: Loaded) -> bool:
    too_long = [300] * (on.engine.limits().context_tokens + 1)
    unknown = replace(GREEDY, adapter="none-of-this-name")
    for prompt, options in ((too_long, GREEDY), ([], GREEDY), (ids(), unknown)):
        with suppress(ApiError):
            if (await on.gathered(prompt, options)).last.result().refusal is None:
                return False
    return True


async def _batch(on: Loaded) -> bool:
    many = min(on.engine.limits().max_batch + 1, MOST)
    sinks = await asyncio.gather(*(on.gathered(ids(), GREEDY) for _ in range(many)))
    return all(sink.last.result().finish in ("length", "stop") for sink in sinks)


async def _silent(on: Loaded) -> bool:
    first = asyncio.Event()

    class Noting(Gathered):
        def push(self, chunk: Chunk, /) -> None:
            super().push(chunk)
            first.set()

    sink = Noting()
    handle = on.engine.generate(ids(), LONG, sink)
    await first.wait()
    handle.abort()
    seen = len(sink.token_ids)
    handle.abort()
    await on.gathered(ids(), GREEDY)
    return len(sink.token_ids) == seen


async def _freed(on: Loaded) -> bool:
    many = range(on.engine.limits().max_batch)
    handles: list[Handle] = [on.engine.generate(ids(), LONG, Gathered()) for _ in many]
    for handle in handles:
        handle.abort()
    return bool((await on.gathered(ids(), GREEDY)).token_ids)


async def _progress(on: Loaded) -> bool:
    before = on.engine.health().last_progress_ns
    await on.gathered(ids(), GREEDY)
    health = on.engine.health()
    return health.alive and health.ready and health.last_progress_ns > before


CLAIMS: dict[str, Callable[[Loaded], Coroutine[None, None, bool]]] = {
    "greedy answers are the same": _greedy,
    "the length is exact": _length,
    "another prompt gives another answer": _prompts,
    "an empty prompt, one too long and an unknown adapter are refused": _refused,
    "a full batch and one more all end": _batch,
    "an abort is silent": _silent,
    "an abort frees its slot": _freed,
    "health shows progress": _progress,
}


def suite(bench: Bench) -> Figures:
    """All claims; the ones that do not hold by name."""
    on = bench.engine()

    def holds(claim: Callable[[Loaded], Coroutine[None, None, bool]]) -> bool:
        try:
            return on.run(claim(on), CLAIM_S)
        except (ApiError, Failed):
            return False

    failed = [name for name, claim in CLAIMS.items() if not holds(claim)]
    figures: Figures = {"claims": len(CLAIMS), "held": len(CLAIMS) - len(failed)}
    return check({f"does not hold: {', '.join(failed)}": failed}, figures)
