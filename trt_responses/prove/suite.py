"""The promises of the engine seam, one claim each, on the loaded engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from trt_responses.engine import Engine, Gathered, GenerateOptions, Handle
from trt_responses.errors import ApiError
from trt_responses.prove.bench import Bench
from trt_responses.prove.canaries import GREEDY, prompt
from trt_responses.prove.claims import Failed, Figures

LONG = replace(GREEDY, max_tokens=2000, temperature=1.0)
CLAIM_S = 120.0


def begin(engine: Engine, ids: Sequence[int], options: GenerateOptions) -> tuple[Gathered, Handle]:
    sink = Gathered()
    return sink, engine.generate(ids, options, sink)


async def answer(engine: Engine, options: GenerateOptions, ids: Sequence[int] = ()) -> Gathered:
    sink, _ = begin(engine, ids or prompt(), options)
    await sink.last
    return sink


async def greedy_is_deterministic(engine: Engine) -> bool:
    await answer(engine, GREEDY)  # a cold prompt is computed in another order
    first, second = [(await answer(engine, GREEDY)).token_ids for _ in range(2)]
    return first == second != []


async def max_tokens_is_exact(engine: Engine) -> bool:
    sink = await answer(engine, GREEDY)
    return len(sink.token_ids) == GREEDY.max_tokens and sink.last.result().finish == "length"


async def no_tokens_is_a_length_finish(engine: Engine) -> bool:
    sink = await answer(engine, replace(GREEDY, max_tokens=0))
    return not sink.token_ids and sink.last.result().finish == "length"


async def prompts_matter(engine: Engine) -> bool:
    other = [token_id + 500 for token_id in range(300, 340)]
    found = [await answer(engine, GREEDY, ids) for ids in (other, prompt())]
    return found[0].token_ids != found[1].token_ids


async def a_prompt_over_the_context_is_refused(engine: Engine) -> bool:
    return await refuses(engine, [300] * (engine.limits().context_tokens + 1), GREEDY)


async def an_empty_prompt_is_refused(engine: Engine) -> bool:
    return await refuses(engine, [], GREEDY)


async def an_unknown_adapter_is_refused(engine: Engine) -> bool:
    return await refuses(engine, prompt(), replace(GREEDY, adapter="none-of-this-name"))


async def a_full_batch_and_one_more_all_end(engine: Engine) -> bool:
    many = min(engine.limits().max_batch, 63) + 1
    sinks = [begin(engine, prompt(), GREEDY)[0] for _ in range(many)]
    ends = [await sink.last for sink in sinks]
    return all(end.finish in ("length", "stop") for end in ends)


async def an_abort_is_silent(engine: Engine) -> bool:
    first = asyncio.Event()

    class Noting(Gathered):
        def push(self, chunk: object, /) -> None:
            super().push(chunk)  # type: ignore[arg-type]  # a chunk
            first.set()

    sink = Noting()
    handle = engine.generate(prompt(), LONG, sink)
    await first.wait()
    handle.abort()
    seen = len(sink.token_ids)
    handle.abort()
    await answer(engine, GREEDY)
    return len(sink.token_ids) == seen


async def an_abort_frees_the_batch(engine: Engine) -> bool:
    handles = [begin(engine, prompt(), LONG)[1] for _ in range(engine.limits().max_batch)]
    for handle in handles:
        handle.abort()
    return bool((await answer(engine, GREEDY)).token_ids)


async def health_shows_progress(engine: Engine) -> bool:
    before = engine.health().last_progress_ns
    await answer(engine, GREEDY)
    health = engine.health()
    return health.alive and health.ready and health.last_progress_ns > before


CLAIMS: tuple[Callable[[Engine], Awaitable[bool]], ...] = (
    greedy_is_deterministic,
    max_tokens_is_exact,
    no_tokens_is_a_length_finish,
    prompts_matter,
    a_prompt_over_the_context_is_refused,
    an_empty_prompt_is_refused,
    an_unknown_adapter_is_refused,
    a_full_batch_and_one_more_all_end,
    an_abort_is_silent,
    an_abort_frees_the_batch,
    health_shows_progress,
)


def suite(bench: Bench) -> Figures:
    """All claims; the failed ones by name."""
    loaded = bench.engine()
    failed = []
    for claim in CLAIMS:
        try:
            held = loaded.run(_bool(claim(loaded.engine)), CLAIM_S)
        except (ApiError, Failed):
            held = False
        if not held:
            failed.append(claim.__name__.replace("_", " "))
    figures: Figures = {"claims": len(CLAIMS), "held": len(CLAIMS) - len(failed)}
    if failed:
        raise Failed(f"does not hold: {', '.join(failed)}", figures)
    return figures


async def _bool(claim: Awaitable[bool]) -> bool:
    return await claim


async def refuses(engine: Engine, ids: Sequence[int], options: GenerateOptions) -> bool:
    try:
        sink, _ = begin(engine, ids, options)
        return (await sink.last).refusal is not None
    except ApiError:
        return True
