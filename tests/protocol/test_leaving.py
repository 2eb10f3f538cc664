"""Clients that hang up, clients that read slowly, and stores that are slow or broken."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.support import lawful
from tests.support.asgi import JSON, until
from tests.support.scripted.engine import Script, Stall
from tests.support.served import ANSWER, SETTINGS, THOUGHT, ids, script, served
from tests.support.stores import FAULTS, BrokenStore, SlowStore, memory
from tests.support.turns import turn

if TYPE_CHECKING:
    from starlette.types import Message

    from tests.support.served import Served

ENDLESS = Script(tuple((i,) for i in ids("<|channel|>final<|message|>") + ids(" word") * 500))
STALLED = script("<|channel|>final<|message|>Hold on", Stall())


async def begun(s: Served) -> None:
    """Wait until the engine has been asked, and let it make a few steps."""
    await until(lambda: bool(s.engine.requests))
    await s.clock.step(5)
    assert s.last.state == "running"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("written", [ENDLESS, STALLED], ids=["writing", "stalled"])
def test_a_client_that_hangs_up_stops_the_engine_within_one_further_step(
    stream: bool, written: Script
) -> None:
    async def story() -> None:
        store = memory()
        async with served(written, store=store, manual=True) as s:
            call = s.client.ask(stream=stream)
            await begun(s)
            taken = s.last.steps_made
            call.hang_up()
            await s.clock.step()
            assert s.last.state == "aborted"
            assert s.last.steps_made <= taken + 1
            await call.done()
            assert len(s.runs) == 0
            assert len(store) == 0, "a foreground run whose client left is not stored"
            assert not stream or b"response.completed" not in call.body
            assert stream or not call.heard

    asyncio.run(story())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
def test_a_place_in_the_batch_is_free_when_its_client_has_left(stream: bool) -> None:
    async def story() -> None:
        async with served(STALLED, ANSWER, max_batch=1, manual=True) as s:
            first = s.client.ask(stream=stream)
            await begun(s)
            second = s.client.ask()
            await s.clock.step(5)
            assert not second.ended
            first.hang_up()
            while not second.ended:
                await s.clock.step()
            assert second.json()["status"] == "completed"

    asyncio.run(story())


def test_a_client_that_leaves_while_it_waits_in_line_is_never_served() -> None:
    async def story() -> None:
        async with served(STALLED, ANSWER, max_batch=1, manual=True) as s:
            first = s.client.ask()
            await begun(s)
            second = s.client.ask(stream=True)
            await until(lambda: s.health().waiting == 1)
            second.hang_up()
            await second.done()
            first.hang_up()
            await s.clock.step(5)
            assert len(s.engine.requests) == 1

    asyncio.run(story())


def test_a_client_that_leaves_before_its_body_is_whole_is_forgotten() -> None:
    async def story() -> None:
        async with served() as s:
            call = s.client.open("POST", "/v1/responses", [b'{"model":', b'"demo", "inp'])
            call.cut_body()
            call.hang_up()
            await call.done()
            assert not call.heard
            assert not s.engine.requests

    asyncio.run(story())


def test_a_slow_reader_gets_every_frame_and_holds_up_nobody() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            slow = s.client.ask(stream=True)
            await slow.until(lambda c: bool(c.heard))
            slow.reading.clear()
            quick = await s.client.create(stream=True)
            assert quick.events[-1]["type"] == "response.completed"
            await until(lambda: s.engine.requests[0].state == "finished")
            taken = len(slow.heard)
            assert not slow.ended
            slow.reading.set()
            await slow.done()
            lawful.check(slow.events, slow.events[-1]["response"])
            assert len(slow.heard) <= taken + 4, "what waited goes out together"

    asyncio.run(story())


def test_a_slow_reader_that_hangs_up_ends() -> None:
    async def story() -> None:
        async with served(ENDLESS, manual=True) as s:
            call = s.client.ask(stream=True)
            await call.until(lambda c: len(c.heard) > 1)
            call.reading.clear()
            await s.clock.step(20)
            call.hang_up()
            await s.clock.step()
            assert s.last.state == "aborted"
            await call.done()

    asyncio.run(story())


def test_no_client_is_told_of_an_end_that_is_not_stored() -> None:
    async def story() -> None:
        store = SlowStore()
        async with served(store=store) as s:
            stream, plain = s.client.ask(stream=True), s.client.ask()
            await store.asked.wait()
            await until(lambda: all(r.state == "finished" for r in s.engine.requests))
            for _ in range(100):
                await turn()
            assert stream.events[-1]["type"] == "response.output_item.done"
            assert not plain.heard
            store.may.set()
            await plain.done()
            await stream.done()
            last = stream.events[-1]
            assert last["type"] == "response.completed"
            assert len(store) == 2

    asyncio.run(story())


@pytest.mark.parametrize("fault", FAULTS, ids=["os", "api", "bug"])
def test_a_record_that_cannot_be_stored_fails_the_response(fault: Exception) -> None:
    async def story() -> None:
        async with served(store=BrokenStore(fault)) as s:
            stream = await s.client.create(stream=True)
            events = stream.events
            assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
            assert "response.completed" not in [event["type"] for event in events]
            lawful.check(events, events[-1]["response"])
            assert stream.body.endswith(b"data: [DONE]\n\n")
            plain = await s.client.create()
            assert plain.status == getattr(fault, "status", 500)
            assert plain.error["type"] == "server_error"
            assert "Traceback" not in plain.error["message"]
            assert (await s.client.create(store=False)).json()["status"] == "completed"

    asyncio.run(story())


def test_a_client_that_leaves_while_the_store_is_busy_leaves_a_record_or_none_but_no_mess() -> None:
    async def story() -> None:
        store = SlowStore()
        async with served(store=store) as s:
            call = s.client.ask(stream=True)
            await store.asked.wait()
            call.hang_up()
            store.may.set()
            await call.done()
            assert len(s.runs) == 0
            assert (await s.client.create()).status == 200

    asyncio.run(story())


def test_a_body_whose_client_leaves_before_its_end_is_not_answered() -> None:
    """Also when what has come would be a whole request."""

    async def story() -> None:
        async with served(ANSWER) as s:
            body = orjson.dumps({"model": SETTINGS["model"], "input": "Hi", "background": True})
            said: list[Message] = [
                {"type": "http.request", "body": body, "more_body": True},
                {"type": "http.disconnect"},
            ]
            sent: list[Message] = []

            async def receive() -> Message:
                return said.pop(0) if said else {"type": "http.disconnect"}

            async def send(message: Message) -> None:
                sent.append(message)

            headers = [(name.encode(), value.encode()) for name, value in JSON.items()]
            scope = {
                "type": "http",
                "method": "POST",
                "path": "/v1/responses",
                "headers": headers,
                "query_string": b"",
            }
            await s.client.app(scope, receive, send)
            assert not sent

    asyncio.run(story())
