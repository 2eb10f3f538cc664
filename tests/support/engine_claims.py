"""The seam's promises, checked on one engine after the other: a test module that makes this
module's tests its own has a fixture `bench`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.support.gather import Gather, begin, generated
from tests.support.turns import turn
from trt_responses.engine import Chunk, GenerateOptions, Guide
from trt_responses.errors import EngineUnavailable, InvalidRequest, NotFound, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from trt_responses.engine import Engine, Handle

CONTEXT = 512
SLOTS = 2
PROMPT = list(range(300, 340))
LONG = 10_000
"""More than the context: such a request runs until it is aborted or the context is full."""
PATIENCE_S = 300.0

T = TypeVar("T")


@dataclass(frozen=True)
class Bench:
    """An engine that runs, the loop it runs on, and how to make another one like it."""

    name: str
    engine: Engine
    make: Callable[[], Engine]
    runner: asyncio.Runner

    def run(self, claim: Coroutine[None, None, T]) -> T:
        return self.runner.run(asyncio.wait_for(claim, PATIENCE_S))

    def warm(self) -> None:
        """From here on the prompt is cached: a cold one is computed in another float order."""
        self.ask(PROMPT, greedy(1))

    def ask(self, prompt_ids: Sequence[int], options: GenerateOptions) -> Gather:
        return self.run(generated(self.engine, prompt_ids, options))


async def begun(engine: Engine) -> tuple[Gather, Handle]:
    """A request that runs. On a busy machine one may have ended before this task hears of it."""
    while True:
        received, handle = begin(engine, PROMPT, sampled(1, LONG))
        if not (await received.some(3)).finished:
            return received, handle


def greedy(
    max_tokens: int = 8, stop_ids: tuple[int, ...] = (), logprobs: int | None = None
) -> GenerateOptions:
    return GenerateOptions(max_tokens, stop_ids, temperature=0.0, logprobs=logprobs)


def sampled(seed: int, max_tokens: int = 16) -> GenerateOptions:
    return GenerateOptions(max_tokens, (), temperature=1.0, seed=seed)


def test_ids_go_in_and_as_many_as_asked_come_out(bench: Bench) -> None:
    received = bench.ask(PROMPT, greedy(8))
    assert len(received.token_ids) == 8
    assert all(isinstance(token_id, int) for token_id in received.token_ids)
    assert (received.end.finish, received.end.stop_id, received.end.error) == ("length", None, None)
    assert received.cached_tokens is not None


def test_greedy_is_deterministic(bench: Bench) -> None:
    bench.warm()
    first, second = (bench.ask(PROMPT, greedy(24)).token_ids for _ in range(2))
    assert first == second


def test_another_prompt_gives_another_answer(bench: Bench) -> None:
    other = [token_id + 500 for token_id in PROMPT]
    assert bench.ask(PROMPT, greedy()).token_ids != bench.ask(other, greedy()).token_ids


def test_a_seed_at_temperature_1_is_repeatable(bench: Bench) -> None:
    bench.warm()
    first, again = (bench.ask(PROMPT, sampled(7)).token_ids for _ in range(2))
    assert first == again
    if bench.name in ("llamacpp", "onnx"):
        assert bench.ask(PROMPT, sampled(8)).token_ids != first


@pytest.mark.parametrize("place", [0, 3, 7])
def test_a_stop_id_is_the_last_id_and_is_named(bench: Bench, place: int) -> None:
    bench.warm()
    free = bench.ask(PROMPT, greedy(8)).token_ids
    wanted = free.index(free[place])
    received = bench.ask(PROMPT, greedy(8, stop_ids=(free[place],)))
    assert received.token_ids == free[: wanted + 1]
    assert (received.end.finish, received.end.stop_id) == ("stop", free[place])
    assert received.chunks[-1].token_ids[-1] == free[place]


def test_no_tokens_wanted_is_a_length_finish_that_comes_later(bench: Bench) -> None:
    async def claim() -> Gather:
        received, _ = begin(bench.engine, PROMPT, greedy(0))
        assert not received.chunks
        return await received.done()

    received = bench.run(claim())
    assert received.token_ids == []
    assert received.end.finish == "length"


def test_a_full_context_is_a_length_finish(bench: Bench) -> None:
    received = bench.ask(PROMPT, greedy(LONG, stop_ids=()))
    assert received.end.finish in ("length", "stop")  # a random model may end by itself
    if received.end.finish == "length":
        assert len(PROMPT) + len(received.token_ids) == CONTEXT


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 1])
def test_a_prompt_over_the_context_is_refused_before_a_token(bench: Bench, length: int) -> None:
    with pytest.raises(InvalidRequest) as refused:
        begin(bench.engine, range(300, 300 + length), greedy())
    assert refused.value.code == "context_length_exceeded"


def test_a_prompt_that_leaves_room_for_one_token_gets_one(bench: Bench) -> None:
    received = bench.ask(range(300, 300 + CONTEXT - 1), greedy())
    assert len(received.token_ids) == 1


def test_an_empty_prompt_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        begin(bench.engine, [], greedy())


def test_what_the_limits_do_not_name_is_refused(bench: Bench) -> None:
    limits = bench.engine.limits()
    assert (limits.context_tokens, limits.max_batch) == (CONTEXT, SLOTS)
    with pytest.raises(Unsupported, match="logprobs"):
        begin(bench.engine, PROMPT, greedy(logprobs=limits.max_logprobs + 1))
    if "json_schema" not in limits.guides:
        guided = GenerateOptions(8, (), guide=Guide("json_schema", "{}"))
        with pytest.raises(Unsupported, match="json_schema"):
            begin(bench.engine, PROMPT, guided)


def test_each_id_has_its_logprob_in_order(bench: Bench) -> None:
    received = bench.ask(PROMPT, greedy(6, logprobs=1))
    assert [entry.token_id for entry in received.logprobs] == received.token_ids
    for chunk in received.chunks:
        assert len(chunk.logprobs) == len(chunk.token_ids)
    for entry in received.logprobs:
        assert entry.top == ((entry.token_id, entry.logprob),)  # greedy takes the likeliest
        assert entry.logprob <= 0


def test_logprobs_without_others_are_of_the_chosen_id_only(bench: Bench) -> None:
    received = bench.ask(PROMPT, greedy(3, logprobs=0))
    assert [entry.token_id for entry in received.logprobs] == received.token_ids
    assert all(entry.top == () for entry in received.logprobs)


def test_no_logprobs_come_unasked(bench: Bench) -> None:
    assert bench.ask(PROMPT, greedy()).logprobs == []


def test_more_at_once_than_the_batch_give_what_each_gives_alone(bench: Bench) -> None:
    prompts = [[token_id + 50 * n for token_id in PROMPT] for n in range(SLOTS + 1)]
    wish = greedy(12, logprobs=8)
    alone = [bench.ask(prompt, wish) for prompt in prompts]

    async def together() -> list[Gather]:
        sinks = [begin(bench.engine, prompt, wish)[0] for prompt in prompts]
        return [await sink.done() for sink in sinks]

    for one, other in zip(alone, bench.run(together()), strict=True):
        if bench.name.startswith("scripted"):
            assert other.token_ids == one.token_ids
            assert other.end == one.end
        else:  # a batch adds floats in another order, and a random model's ids hang on that
            assert one.token_ids[0] in [token_id for token_id, _ in other.logprobs[0].top]
            assert len(other.token_ids) == 12 or other.end.finish == "stop"


def test_abort_is_silent_and_idempotent(bench: Bench) -> None:
    async def claim() -> None:
        received, handle = await begun(bench.engine)
        handle.abort()
        seen = len(received.chunks)
        handle.abort()
        await generated(bench.engine, PROMPT, greedy())  # time passes, and steps with it
        handle.abort()
        assert len(received.chunks) == seen
        assert not received.finished

    bench.run(claim())


def test_abort_before_the_first_chunk_is_silent(bench: Bench) -> None:
    async def claim() -> None:
        at_once, handle = begin(bench.engine, PROMPT, greedy())
        handle.abort()
        later, handle = begin(bench.engine, PROMPT, greedy())
        await turn()
        handle.abort()
        seen = len(later.chunks)  # a scripted engine may have made its first step
        nothing, handle = begin(bench.engine, PROMPT, greedy(0))
        handle.abort()
        await generated(bench.engine, PROMPT, greedy())
        assert at_once.chunks == nothing.chunks == []
        assert len(later.chunks) == seen < 2

    bench.run(claim())


def test_abort_after_the_end_does_nothing(bench: Bench) -> None:
    async def claim() -> None:
        received, handle = begin(bench.engine, PROMPT, greedy())
        await received.done()
        handle.abort()
        assert received.end.finish == "length"

    bench.run(claim())


def test_a_sink_may_abort_its_own_request(bench: Bench) -> None:
    async def claim() -> None:
        first = asyncio.Event()

        class Once(Gather):
            def push(self, chunk: Chunk, /) -> None:
                super().push(chunk)
                handle.abort()
                first.set()

        received = Once()
        handle = bench.engine.generate(PROMPT, sampled(2, LONG), received)
        await first.wait()
        await generated(bench.engine, PROMPT, greedy())
        assert len(received.chunks) == 1
        assert not received.finished

    bench.run(claim())


def test_an_aborted_request_in_line_never_runs_and_the_next_one_does(bench: Bench) -> None:
    async def claim() -> None:
        running = [begin(bench.engine, PROMPT, sampled(n, LONG)) for n in range(SLOTS)]
        waiting, handle = begin(bench.engine, PROMPT, greedy())
        behind, _ = begin(bench.engine, PROMPT, greedy())
        handle.abort()
        for _, runs in running:
            runs.abort()
        await behind.done()
        assert not waiting.chunks

    bench.run(claim())


def test_progress_is_told(bench: Bench) -> None:
    before = bench.engine.health()
    bench.ask(PROMPT, greedy())
    after = bench.engine.health()
    assert (after.alive, after.ready, after.reason) == (True, True, None)
    assert after.last_progress_ns > before.last_progress_ns


def test_an_engine_is_ready_between_start_and_stop_which_fails_what_runs(bench: Bench) -> None:
    async def claim() -> None:
        engine = bench.make()
        assert not engine.health().ready
        assert engine.health().reason
        with pytest.raises(EngineUnavailable):
            begin(engine, PROMPT, greedy())
        await engine.start()
        assert engine.health().ready
        received = [(await begun(engine))[0]]
        received += [begin(engine, PROMPT, sampled(n, LONG))[0] for n in range(SLOTS)]
        await engine.stop(5)
        assert [sink.end.finish for sink in received] == ["error"] * (SLOTS + 1)
        assert all(sink.end.error for sink in received)
        health = engine.health()
        assert (health.ready, bool(health.reason)) == (False, True)
        with pytest.raises(EngineUnavailable):
            begin(engine, PROMPT, greedy())

    bench.run(claim())


def test_an_adapter_that_it_does_not_have_is_refused_by_name(bench: Bench) -> None:
    with pytest.raises(NotFound, match="no adapter 'style'"):
        bench.ask(PROMPT, GenerateOptions(4, (), adapter="style"))


CLAIMS = {name: claim for name, claim in globals().items() if name.startswith("test_")}
