"""A background stream read again: from any event on, from any server, byte for byte.

Budget: 5 s on one core.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.support.asgi import JSON, asked
from tests.support.background import AT_ONCE, frames, got, replay, started, two
from tests.support.sdk_judge import refused
from tests.support.served import ANSWER, LONG, STALLED, THOUGHT, served
from tests.support.ticks import Ticks, settled
from trt_responses.features.background.replay import LOST
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore


@pytest.mark.parametrize("dialect", ["openai", "open-responses"])
def test_what_is_read_again_is_byte_for_byte_what_was_told(dialect: str) -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            body = orjson.dumps(asked(background=True, stream=True))
            headers = JSON | {"x-trt-dialect": dialect}
            first = await s.client.send("POST", "/v1/responses", body, headers)
            told = frames(first.body)
            response_id = first.events[0]["response"]["id"]
            for after in range(-1, len(told) - 1):
                call = await replay(s, response_id, None if after < 0 else after).done()
                assert call.status == 200
                assert call.headers["content-type"] == "text/event-stream; charset=utf-8"
                rest = told[after + 1 :] or told[-1:]  # `[DONE]` in any case
                assert frames(call.body) == rest, after

    asyncio.run(story())


def test_a_reader_that_begins_behind_the_end_is_refused_with_the_end_s_number() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            first = await s.client.create(background=True, stream=True)
            response_id, last = first.events[0]["response"]["id"], len(first.events) - 1
            assert (await replay(s, response_id, last).done()).body == frames(first.body)[-1]
            for after in (last + 1, last + 2, 10**15):
                call = await replay(s, response_id, after).done()
                assert (call.status, call.error["param"]) == (400, "starting_after")
                assert f"number {last}" in call.error["message"]

    asyncio.run(story())


def test_it_goes_on_live_from_where_the_reader_was() -> None:
    async def story() -> None:
        async with served(LONG, manual=True, **AT_ONCE) as s:
            first = s.client.ask(background=True, stream=True)
            await first.until(lambda c: len(c.heard) > 1)
            response_id = first.events[0]["response"]["id"]
            await s.clock.step(30)
            first.hang_up()
            await first.done()
            seen = len(first.events)
            await s.clock.step(30)
            second = replay(s, response_id, seen - 1)
            await second.until(lambda c: len(c.heard) > 1)
            assert second.events[0]["sequence_number"] == seen
            before = len(second.events)
            await s.clock.step(3)
            assert len(second.events) == before + 3, "each step comes as it is made"
            while not second.ended:
                await s.clock.step(20)
            whole = await replay(s, response_id).done()
            assert frames(first.body) + frames(second.body) == frames(whole.body)
            assert second.events[-1]["response"] == await got(s, response_id)

    asyncio.run(story())


def test_a_reader_may_begin_in_the_future() -> None:
    async def story() -> None:
        async with served(LONG, manual=True, **AT_ONCE) as s:
            response_id = (await started(s))["id"]
            call = replay(s, response_id, 50)
            await s.clock.step(10)
            assert not call.events
            while not call.ended:
                await s.clock.step(20)
            assert call.events[0]["sequence_number"] == 51

    asyncio.run(story())


def test_a_reader_whose_future_never_comes_gets_a_fault() -> None:
    async def story() -> None:
        async with two(ANSWER) as t:
            response_id = (await started(t.one))["id"]
            await t.pass_(2)
            calls = [replay(s, response_id, 500) for s in (t.one, t.other)]
            await settled()
            while (await got(t.one, response_id))["status"] != "completed":
                await t.one.clock.step(20)
            await t.pass_(2)
            for call in calls:
                (event,) = (await call.done()).events
                assert refused(event) is None
                assert (event["type"], event["param"]) == ("error", "starting_after")
                assert event["sequence_number"] == 501
                assert frames(call.body)[1:] == [b"data: [DONE]\n\n"]

    asyncio.run(story())


def test_another_server_replays_and_follows() -> None:
    async def story() -> None:
        async with two(LONG) as t:
            first = t.one.client.ask(background=True, stream=True)
            await first.until(lambda c: len(c.heard) > 1)
            response_id = first.events[0]["response"]["id"]
            await t.one.clock.step(40)
            await t.pass_(2)
            there = replay(t.other, response_id, 4)
            await settled()
            assert there.events[0]["sequence_number"] == 5
            before = len(there.events)
            assert before > 30
            await t.one.clock.step(10)
            await t.pass_(2)
            assert len(there.events) >= before + 10, "news come within two seconds"
            while not first.ended:
                await t.one.clock.step(20)
            await t.pass_(2)
            await there.done()
            assert frames(there.body) == frames(first.body)[5:]
            for s in (t.one, t.other):
                assert frames((await replay(s, response_id).done()).body) == frames(first.body)

    asyncio.run(story())


def test_a_replay_elsewhere_ends_when_the_response_is_deleted() -> None:
    async def story() -> None:
        async with two(STALLED) as t:
            response_id = (await started(t.one))["id"]
            await t.one.clock.step(4)
            there = replay(t.other, response_id)
            await t.pass_(2)
            await t.other.client.send("DELETE", f"/v1/responses/{response_id}")
            await t.pass_(2)
            await there.done()
            assert there.body.endswith(b"data: [DONE]\n\n")

    asyncio.run(story())


def test_a_reader_that_leaves_another_server_stops_asking_the_store() -> None:
    asked: list[int] = []

    class Counted(MemoryStore):
        async def frames_after(self, response_id: str, owner: str, after: int) -> Any:
            asked.append(after)
            return await super().frames_after(response_id, owner, after)

    async def story() -> None:
        async with two(STALLED, store_type=Counted) as t:
            response_id = (await started(t.one))["id"]
            there = replay(t.other, response_id)
            await t.pass_(2)
            before = len(asked)
            await t.pass_(2)
            assert len(asked) > before
            there.hang_up()
            await there.done()
            before = len(asked)
            await t.pass_(3)
            assert len(asked) == before

    asyncio.run(story())


def test_the_stream_of_a_dead_server_ends_in_a_failure_that_says_so() -> None:
    async def story() -> None:
        async with two(LONG) as t:
            response_id = (await started(t.one))["id"]
            await t.one.clock.step(20)
            await t.pass_(2)
            there = replay(t.other, response_id)
            await t.pass_(40, dead=0)
            await there.done()
            events = there.events
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
            assert events[-1]["response"]["error"]["message"] == LOST
            assert [refused(event) for event in events[-2:]] == [None, None]
            again = await replay(t.other, response_id, len(events) - 3).done()
            assert again.events == events[-2:]
            assert (await replay(t.other, response_id, len(events) - 1).done()).events == []
            assert (await replay(t.other, response_id, len(events)).done()).status == 400
            assert (await got(t.other, response_id)) == events[-1]["response"]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("stream=true&starting_after=-1", "starting_after"),
        ("stream=true&starting_after=x", "starting_after"),
        ("stream=true&starting_after=1.5", "starting_after"),
        ("stream=true&starting_after=" + "9" * 40, "starting_after"),
        ("stream=true&starting_after=", "starting_after"),
        ("stream=perhaps", "stream"),
        ("starting_after=3", "starting_after"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_by_name(query: str, param: str) -> None:
    async def story() -> None:
        async with served() as s:
            response_id = (await started(s))["id"]
            call = await s.client.get(f"/v1/responses/{response_id}?{query}")
            assert (call.status, call.error["param"]) == (400, param)

    asyncio.run(story())


def test_a_foreground_response_is_not_streamed_again() -> None:
    async def story() -> None:
        async with served() as s:
            made = (await s.client.create()).json()
            call = await replay(s, made["id"]).done()
            assert (call.status, call.error["param"]) == (400, "stream")
            assert "background" in call.error["message"]
            for query in ("stream=false", "", "include=x&include[]=y"):
                call = await s.client.get(f"/v1/responses/{made['id']}?{query}")
                assert call.json() == made
            assert call.headers["x-trt-ignored"] == "include, include[]"

    asyncio.run(story())


def test_events_that_have_left_the_store_are_said_to_have_left() -> None:
    async def story() -> None:
        store = MemoryStore(Bounds(max_frame_bytes=1))
        async with served(ANSWER, store=store) as s:
            first = await s.client.create(background=True, stream=True)
            await s.client.create(background=True, stream=True)
            response_id = first.events[0]["response"]["id"]
            call = await replay(s, response_id).done()
            assert (call.status, call.error["code"]) == (404, "events_expired")
            assert (await got(s, response_id))["status"] == "completed"

    asyncio.run(story())


def test_expired_and_unknown_are_told_apart_to_their_owner() -> None:
    async def story() -> None:
        async with served(store=MemoryStore(Bounds(max_records=1))) as s:
            first = (await s.client.create()).json()["id"]
            await s.client.create()
            for query in ("", "?stream=true", "/input_items"):
                call = await s.client.get(f"/v1/responses/{first}{query}")
                assert (call.status, call.error["code"]) == (404, "response_expired")
            call = await s.client.create(previous_response_id=first)
            assert (call.status, call.error["code"]) == (404, "previous_response_expired")
            call = await s.client.create(previous_response_id="resp_never")
            assert (call.status, call.error["code"]) == (404, "previous_response_not_found")

    asyncio.run(story())


def test_a_silent_replay_says_that_it_lives() -> None:
    async def story() -> None:
        ticks = Ticks()
        async with served(STALLED, manual=True, sleep=ticks.sleep, **AT_ONCE) as s:
            more: dict[str, Any] = {"background": True, "stream": True}
            call = s.client.ask(**more)
            await call.until(lambda c: len(c.heard) > 1)
            await s.clock.step(4)
            before = call.body
            await ticks.pass_(26)
            assert call.body == before + b": keep-alive\n\n" * 2

    asyncio.run(story())


def test_a_silent_replay_from_the_store_says_so_too() -> None:
    async def story() -> None:
        async with two(STALLED) as t:
            response_id = (await started(t.one))["id"]
            await t.one.clock.step(4)
            await t.pass_(2)
            there = replay(t.other, response_id)
            await settled()
            before = there.body
            await t.pass_(26)
            assert there.body == before + b": keep-alive\n\n" * 2

    asyncio.run(story())


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_a_silent_replay_repeats_an_event_and_whoever_goes_on_behind_it_misses_nothing(
    place: str,
) -> None:
    """For clients that count events alone, wherever the frames come from."""

    async def story() -> None:
        async with two(STALLED) as t:
            first = t.one.client.ask(background=True, stream=True)
            await first.until(lambda c: len(c.heard) > 1)
            response_id = first.events[0]["response"]["id"]
            await t.one.clock.step(4)
            await t.pass_(2)
            s = t.one if place == "here" else t.other
            reading = replay(s, response_id, 1)
            await settled()
            told = reading.events
            await t.pass_(33)
            repeated = reading.events[-1]
            assert reading.events == [*told, repeated]
            assert repeated["type"] == "response.in_progress"
            assert repeated["sequence_number"] == told[-1]["sequence_number"]
            assert repeated["response"]["id"] == response_id
            assert refused(repeated) is None
            reading.hang_up()
            await reading.done()
            again = replay(s, response_id, repeated["sequence_number"])
            t.one.burn_out()
            await t.pass_(3)
            await again.done()
            numbers = [event["sequence_number"] for event in (*told, *again.events)]
            assert numbers == list(range(2, 2 + len(numbers)))
            assert again.events[-1]["type"] == "response.failed"

    asyncio.run(story())
