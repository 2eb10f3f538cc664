"""Streams whose client takes nothing, or to which nothing is said. Budget: 3 s on one core."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import Client, asked
from tests.support.background import AT_ONCE, ended
from tests.support.scripted.engine import Script
from tests.support.served import ANSWER, STALLED, THOUGHT, ids, served
from tests.support.ticks import Ticks, settled

if TYPE_CHECKING:
    from starlette.types import Message

PING = b": keep-alive\n\n"
LONG = Script(tuple((i,) for i in ids("<|channel|>final<|message|>") + ids(" word") * 400))


def test_a_silent_stream_gets_a_comment_after_its_time_and_no_sooner() -> None:
    async def story() -> None:
        ticks = Ticks()
        async with served(STALLED, manual=True, sleep=ticks.sleep) as s:
            call = s.client.ask(stream=True)
            await call.until(lambda c: len(c.heard) > 1)
            opened = call.body
            await ticks.pass_(9.9)
            assert call.body == opened
            await ticks.pass_(2.6)
            assert call.body == opened + PING
            await ticks.pass_(10)
            assert call.body == opened + PING * 2
            await s.clock.step(3)
            said = call.body
            await ticks.pass_(9.9)
            assert call.body == said, "what was said counts"
            await ticks.pass_(2.6)
            assert call.body == said + PING
            call.hang_up()
            await call.done()

    asyncio.run(story())


def test_an_event_is_repeated_for_clients_that_count_events_alone() -> None:
    """It has the number of the last event, so that whoever goes on behind it misses nothing."""

    async def story() -> None:
        ticks = Ticks()
        async with served(STALLED, manual=True, sleep=ticks.sleep) as s:
            call = s.client.ask(stream=True, background=True)
            await call.until(lambda c: len(c.heard) > 1)
            await s.clock.step(4)
            last = call.events[-1]
            assert last["type"] == "response.output_text.delta"
            await ticks.pass_(32.5)
            repeated = call.events[-1]
            assert repeated["type"] == "response.in_progress"
            assert repeated["sequence_number"] == last["sequence_number"]
            assert call.body.count(PING) == 2
            call.hang_up()
            await call.done()
            number = repeated["sequence_number"]
            path = f"/v1/responses/{repeated['response']['id']}?stream=true"
            again = s.client.open("GET", f"{path}&starting_after={number}")
            await s.clock.step(1)
            s.burn_out()
            await again.done()
            numbers = [event["sequence_number"] for event in again.events]
            assert numbers == list(range(number + 1, number + 1 + len(numbers)))

    asyncio.run(story())


@pytest.mark.parametrize(
    ("path", "sign"),
    [("/v1/chat/completions", PING), ("/v1/messages", b'event: ping\ndata: {"type":"ping"}\n\n')],
)
def test_other_apis_have_their_own_sign_of_life(path: str, sign: bytes) -> None:
    async def story() -> None:
        ticks = Ticks()
        async with served(STALLED, manual=True, sleep=ticks.sleep, keep_alive_event_s=10) as s:
            hello = [{"role": "user", "content": "Hello"}]
            body = {"model": "demo", "max_tokens": 99, "messages": hello, "stream": True}
            call = s.client.open("POST", path, orjson.dumps(body))
            await call.until(lambda c: len(c.heard) > 1)
            opened = call.body
            await ticks.pass_(12.5)
            assert call.body == opened + sign
            call.hang_up()
            await call.done()

    asyncio.run(story())


def test_a_stream_that_is_busy_gets_none() -> None:
    async def story() -> None:
        ticks = Ticks()
        async with served(LONG, manual=True, sleep=ticks.sleep, keep_alive_s=4) as s:
            call = s.client.ask(stream=True)
            await call.until(lambda c: len(c.heard) > 1)
            for _ in range(12):
                await s.clock.step()
                await ticks.pass_(1)
            assert PING not in call.body
            call.hang_up()
            await call.done()

    asyncio.run(story())


def test_a_client_that_has_taken_nothing_is_not_sent_comments() -> None:
    async def story() -> None:
        ticks = Ticks()
        async with served(STALLED, manual=True, sleep=ticks.sleep) as s:
            call = s.client.ask(stream=True)
            await call.until(lambda c: len(c.heard) > 1)
            call.reading.clear()
            await s.clock.step(4)
            await ticks.pass_(60)
            call.reading.set()
            await settled()
            assert PING not in call.body
            call.hang_up()
            await call.done()

    asyncio.run(story())


def test_a_plain_answer_has_no_comments() -> None:
    async def story() -> None:
        ticks = Ticks()
        async with served(THOUGHT, manual=True, sleep=ticks.sleep) as s:
            call = s.client.ask()
            await ticks.pass_(60)
            while not call.ended:
                await s.clock.step()
            assert call.json()["status"] == "completed"

    asyncio.run(story())


def test_a_foreground_run_ends_when_its_client_is_too_slow() -> None:
    async def story() -> None:
        async with served(LONG, manual=True, max_backlog_bytes=20_000) as s:
            call = s.client.ask(stream=True)
            await call.until(lambda c: len(c.heard) > 1)
            call.reading.clear()
            await s.clock.step(60)
            assert s.last.steps_made == 60, "a little slow is not too slow"
            await s.clock.step(200)
            assert s.last.state == "aborted"
            await call.done()
            assert len(s.runs) == 0
            assert b"[DONE]" not in call.body

    asyncio.run(story())


def test_a_client_that_catches_up_in_time_gets_every_frame_once() -> None:
    async def story() -> None:
        async with served(LONG, manual=True, max_backlog_bytes=30_000) as s:
            call = s.client.ask(stream=True)
            await call.until(lambda c: len(c.heard) > 1)
            for _ in range(6):
                call.reading.clear()
                await s.clock.step(50)
                call.reading.set()
                await settled()
            while not call.ended:
                await s.clock.step(20)
            numbers = [event["sequence_number"] for event in call.events]
            assert numbers == list(range(len(numbers)))
            assert call.events[-1]["type"] == "response.completed"

    asyncio.run(story())


def test_a_background_reader_that_is_too_slow_is_dropped_and_its_run_goes_on() -> None:
    async def story() -> None:
        async with served(LONG, manual=True, max_backlog_bytes=20_000, **AT_ONCE) as s:
            call = s.client.ask(background=True, stream=True)
            await call.until(lambda c: len(c.heard) > 1)
            response_id = call.events[0]["response"]["id"]
            call.reading.clear()
            await s.clock.step(300)
            await call.done()
            assert s.last.state == "running"
            assert (await ended(s, response_id))["status"] == "completed"

    asyncio.run(story())


@pytest.mark.parametrize("background", [False, True])
def test_a_reply_that_cannot_begin_leaves_nothing_behind(background: bool) -> None:
    async def story() -> None:
        async with served(ANSWER, THOUGHT) as s:
            await s.client.create()
            app: Any = s.client.app

            async def broken(scope: Any, receive: Any, send: Any) -> None:
                async def fails(message: Message) -> None:
                    raise OSError("the socket is gone")

                await app(scope, receive, fails)

            body = orjson.dumps(asked(stream=True, background=background))
            call = Client(broken).open("POST", "/v1/responses", body)
            with pytest.raises(OSError, match="gone"):
                await call.done()
            await settled(400)
            assert len(s.runs) == 0
            asked_for = len(s.engine.requests)
            assert asked_for == (2 if background else 1), "only what nobody reads goes on"

    asyncio.run(story())
