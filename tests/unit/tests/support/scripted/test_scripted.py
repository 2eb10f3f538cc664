"""The scripted engine's own claims; what every engine promises is in support/engine_claims."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.gather import Gather, begin, chunks, generated
from tests.support.scripted.engine import (
    Die,
    Request,
    Scored,
    Script,
    ScriptedEngine,
    Stall,
    StepClock,
)
from tests.support.turns import turn
from trt_responses.engine import Chunk, GenerateOptions, Logprob
from trt_responses.errors import EngineUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

PROMPT = (1, 2, 3)


def options(
    max_tokens: int = 100,
    stop_ids: tuple[int, ...] = (),
    *,
    logprobs: int | None = None,
    priority: float = 0.5,
) -> GenerateOptions:
    return GenerateOptions(max_tokens, stop_ids, logprobs=logprobs, priority=priority)


async def started(
    *scripts: Script, clock: StepClock | None = None, max_batch: int = 64
) -> ScriptedEngine:
    engine = ScriptedEngine(scripts, clock=clock, max_batch=max_batch)
    await engine.start()
    return engine


def words(count: int, start: int = 10) -> Script:
    return Script(tuple((i,) for i in range(start, start + count)))


def replay(script: Script, wishes: GenerateOptions) -> Gather:
    async def run() -> Gather:
        return await generated(await started(script), PROMPT, wishes)

    return asyncio.run(run())


def test_each_step_is_one_chunk_and_the_finish_rides_on_the_last() -> None:
    told = replay(Script(((1,), (), (2, 3, 4)), cached_tokens=2), options())
    assert told.chunks == [Chunk((1,), cached_tokens=2), Chunk(()), Chunk((2, 3, 4), finish="stop")]


@pytest.mark.parametrize(
    ("wishes", "ids", "finish", "stop_id"),
    [
        (options(), [1, 2, 3, 4, 5], "stop", None),
        (options(stop_ids=(3,)), [1, 2, 3], "stop", 3),
        (options(stop_ids=(5,)), [1, 2, 3, 4, 5], "stop", 5),
        (options(stop_ids=(4, 2)), [1, 2], "stop", 2),
        (options(3, stop_ids=(3,)), [1, 2, 3], "stop", 3),
        (options(2, stop_ids=(3,)), [1, 2], "length", None),
        (options(3), [1, 2, 3], "length", None),
        (options(5), [1, 2, 3, 4, 5], "length", None),
        (options(0), [], "length", None),
    ],
)
def test_stop_ids_and_max_tokens_cut_inside_a_step(
    wishes: GenerateOptions, ids: list[int], finish: str, stop_id: int | None
) -> None:
    told = replay(Script(((1,), (2, 3, 4, 5))), wishes)
    assert told.token_ids == ids
    assert (told.end.finish, told.end.stop_id) == (finish, stop_id)


def test_a_script_may_say_how_it_ends() -> None:
    assert replay(Script(((1,),), finish="length"), options()).end.finish == "length"
    assert replay(Script(), options()).chunks == [Chunk(finish="stop")]


def test_a_request_that_dies_ends_with_its_message_and_the_engine_lives() -> None:
    async def run() -> None:
        engine = await started(Script(((1,), Die("out of memory"))), words(1))
        told = await generated(engine, PROMPT, options())
        assert told.token_ids == [1]
        assert (told.end.finish, told.end.error) == ("error", "out of memory")
        assert engine.health().alive
        assert (await generated(engine, PROMPT, options())).token_ids == [10]

    asyncio.run(run())


def test_scored_steps_give_their_logprobs_cut_with_the_ids_and_to_the_count_asked() -> None:
    first = Logprob(1, -0.5, ((1, -0.5), (9, -1.0)))
    second = Logprob(2, -0.1, ((2, -0.1),))
    script = Script((Scored((first, second)),))
    assert replay(script, options(1, logprobs=1)).logprobs == [Logprob(1, -0.5, ((1, -0.5),))]
    assert replay(script, options(logprobs=2)).logprobs == [first, second]
    assert replay(script, options()).logprobs == []


def test_one_step_of_a_manual_clock_advances_every_running_request_by_one() -> None:
    async def run() -> None:
        clock = StepClock.manual()
        engine = await started(words(3), words(5, start=50), clock=clock)
        one, two = (begin(engine, PROMPT, options())[0] for _ in range(2))
        await turn()
        assert not one.chunks
        await clock.step()
        assert (one.token_ids, two.token_ids) == ([10], [50])
        await clock.step(3)
        assert (one.token_ids, two.token_ids) == ([10, 11, 12], [50, 51, 52, 53])
        assert [request.steps_made for request in engine.requests] == [3, 4]
        assert [request.state for request in engine.requests] == ["finished", "running"]

    asyncio.run(run())


def test_past_the_batch_requests_wait_by_priority_and_then_by_arrival() -> None:
    async def run() -> list[int]:
        clock = StepClock.manual()
        engine = await started(*(words(1, start=n) for n in range(5)), clock=clock, max_batch=1)
        order: list[int] = []

        class Order:
            def push(self, chunk: Chunk, /) -> None:
                order.extend(chunk.token_ids)

        for priority in (0.1, 0.5, 0.9, 0.5, 0.9):
            engine.generate(PROMPT, options(priority=priority), Order())
        await clock.step(5)
        return order

    assert asyncio.run(run()) == [2, 4, 1, 3, 0]


def test_a_stalled_request_holds_its_place_until_it_is_aborted() -> None:
    async def run() -> None:
        engine = await started(Script(((1,), Stall())), words(1), max_batch=1)
        stuck, handle = begin(engine, PROMPT, options())
        waiting, _ = begin(engine, PROMPT, options())
        await turn(20)
        assert (stuck.token_ids, stuck.finished) == ([1], False)
        assert not waiting.chunks
        handle.abort()
        await waiting.done()
        assert [request.state for request in engine.requests] == ["aborted", "finished"]

    asyncio.run(run())


def test_an_idle_free_clock_does_not_step() -> None:
    async def run() -> None:
        engine = await started(Script(((1,), Stall())))
        await begin(engine, PROMPT, options())[0].some()
        await turn()
        steps = engine.clock.steps
        await turn(20)
        assert engine.clock.steps == steps == 2

    asyncio.run(run())


def test_an_aborted_request_takes_no_further_step() -> None:
    async def run() -> None:
        clock = StepClock.manual()
        engine = await started(words(10), clock=clock)
        told, handle = begin(engine, PROMPT, options())
        await clock.step(2)
        handle.abort()
        await clock.step(3)
        assert told.token_ids == [10, 11]
        assert (engine.requests[0].steps_made, engine.requests[0].state) == (2, "aborted")

    asyncio.run(run())


def test_a_push_may_abort_any_request_of_its_step() -> None:
    async def run() -> None:
        clock = StepClock.manual()
        engine = await started(words(5), clock=clock)
        handles: list[Request] = []

        class AbortsAll(Gather):
            def push(self, chunk: Chunk, /) -> None:
                super().push(chunk)
                for handle in handles:
                    handle.abort()

        first, second = AbortsAll(), Gather()
        handles += [engine.generate(PROMPT, options(), sink) for sink in (first, second)]
        await clock.step(3)
        assert (first.token_ids, second.token_ids) == ([10], [])

    asyncio.run(run())


def test_a_sink_that_raises_stops_no_other_request() -> None:
    async def run() -> None:
        raised: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: raised.append(told))
        engine = await started(words(3))

        class Raises:
            def push(self, chunk: Chunk, /) -> None:
                raise ValueError("a sink must not")

        engine.generate(PROMPT, options(), Raises())
        assert (await generated(engine, PROMPT, options())).end.finish == "stop"
        assert raised

    asyncio.run(run())


def test_a_killed_engine_fails_all_requests_and_takes_no_more() -> None:
    async def run() -> None:
        clock = StepClock.manual()
        engine = await started(words(5), Script((Stall(),)), words(1), clock=clock, max_batch=2)
        told = [begin(engine, PROMPT, options())[0] for _ in range(3)]
        await clock.step(2)
        engine.kill("the device is gone")
        assert [(t.end.finish, t.end.error) for t in told] == [("error", "the device is gone")] * 3
        health = engine.health()
        assert (health.alive, health.ready, health.reason) == (False, False, "the device is gone")
        with pytest.raises(EngineUnavailable, match="the device is gone"):
            begin(engine, PROMPT, options())

    asyncio.run(run())


def test_progress_is_told_by_the_clock_that_was_given() -> None:
    async def run() -> None:
        ticks = iter(range(100))
        clock = StepClock.manual()
        engine = ScriptedEngine([words(2)], clock=clock, now_ns=lambda: next(ticks))
        await engine.start()
        idle = engine.health().last_progress_ns
        await clock.step(3)
        assert engine.health().last_progress_ns == idle
        begin(engine, PROMPT, options())
        await clock.step()
        assert engine.health().last_progress_ns == idle + 1
        assert engine.health().last_progress_ns == idle + 1, "looking is no progress"

    asyncio.run(run())


def test_a_callable_writes_a_script_for_each_prompt() -> None:
    def echo(prompt_ids: Sequence[int], wishes: GenerateOptions) -> Script:
        return Script((tuple(reversed(prompt_ids)), wishes.stop_ids))

    async def run() -> list[int]:
        engine = ScriptedEngine(echo)
        await engine.start()
        return (await generated(engine, PROMPT, options(stop_ids=(7,)))).token_ids

    assert asyncio.run(run()) == [3, 2, 1, 7]


def test_records_are_bounded_and_keep_no_sink() -> None:
    async def run() -> None:
        engine = ScriptedEngine([words(1)], keep_records=2)
        await engine.start()
        for prompt in ((1,), (2,), (3,)):
            await generated(engine, prompt, options())
        assert [request.prompt_ids for request in engine.requests] == [(2,), (3,)]
        assert all(request.sink is None for request in engine.requests)

    asyncio.run(run())


def test_leaving_the_iterator_early_aborts() -> None:
    async def run() -> None:
        engine = await started(words(5))
        stream = chunks(engine, PROMPT, options())
        assert (await anext(stream)).token_ids == (10,)
        await stream.aclose()  # type: ignore[attr-defined]
        assert engine.requests[0].state == "aborted"
        assert [c.finish async for c in chunks(engine, PROMPT, options())][-1] == "stop"

    asyncio.run(run())


def test_a_clock_that_is_woken_while_it_runs_steps_no_faster() -> None:
    async def run() -> None:
        clock = StepClock.free()
        clock.drive(lambda: True)
        clock.wake()
        for step in range(1, 10):
            await turn()
            clock.wake()
            assert clock.steps == step

    asyncio.run(run())
