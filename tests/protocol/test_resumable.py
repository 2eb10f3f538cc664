"""Foreground streams that were cut and are read again: `stream_options.resumable_seconds`.

Budget: 2 s on one core.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import JSON
from tests.support.background import AT_ONCE, frames, got, replay, two
from tests.support.sdk_judge import refused
from tests.support.served import LONG, STALLED, THOUGHT, served
from tests.support.sockets import connected
from tests.support.ticks import Ticks, settled
from trt_responses.errors import ApiError
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore

if TYPE_CHECKING:
    from tests.support.asgi import Call
    from tests.support.served import Served

RESUMABLE: dict[str, Any] = {"stream": True, "stream_options": {"resumable_seconds": 30}}


async def cut(s: Served, steps: int = 30) -> tuple[Call, str]:
    """A stream whose client left in its middle, and the response's id."""
    first = s.client.ask(**RESUMABLE)
    await first.until(lambda c: len(c.heard) > 1)
    await s.clock.step(steps)
    first.hang_up()
    await first.done()
    return first, first.events[0]["response"]["id"]


async def rest(s: Served, call: Call) -> None:
    while not call.ended:
        await s.clock.step(20)


def test_a_resumable_stream_is_the_stream_of_any_other() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            plain = await s.client.create(stream=True)
            kept = await s.client.create(**RESUMABLE)
            assert "x-trt-ignored" not in kept.headers
            assert [e["type"] for e in kept.events] == [e["type"] for e in plain.events]
            assert [e["sequence_number"] for e in kept.events] == list(range(len(kept.events)))
            last = kept.events[-1]["response"]
            assert last["background"] is False
            assert last == await got(s, last["id"])
            again = await replay(s, last["id"]).done()
            assert again.body == kept.body
            other = await replay(s, plain.events[-1]["response"]["id"]).done()
            assert (other.status, other.error["param"]) == (400, "stream")
            for event in kept.events:
                assert refused(event) is None, event

    asyncio.run(story())


@pytest.mark.parametrize("by_header", [False, True])
def test_a_cut_stream_is_read_again_from_where_it_was(by_header: bool) -> None:
    async def story() -> None:
        async with served(LONG, manual=True, **AT_ONCE) as s:
            first, response_id = await cut(s)
            seen = len(first.events)
            assert (await got(s, response_id))["status"] == "in_progress"
            if by_header:
                path = f"/v1/responses/{response_id}?stream=true"
                headers = {"last-event-id": str(seen - 1)}
                second = s.client.open("GET", path, headers=JSON | headers)
            else:
                second = replay(s, response_id, seen - 1)
            await rest(s, second)
            numbers = [e["sequence_number"] for e in (*first.events, *second.events)]
            assert numbers == list(range(len(numbers)))
            whole = await replay(s, response_id).done()
            assert frames(first.body) + frames(second.body) == frames(whole.body)

    asyncio.run(story())


def test_without_a_reader_it_is_cancelled_when_the_time_is_over_and_not_before() -> None:
    async def story() -> None:
        ticks = Ticks()
        async with served(STALLED, manual=True, sleep=ticks.sleep, **AT_ONCE) as s:
            _, response_id = await cut(s, 3)
            await ticks.pass_(29)
            reader = replay(s, response_id)
            await reader.until(lambda c: len(c.heard) > 1)
            await ticks.pass_(100)
            assert (await got(s, response_id))["status"] == "in_progress", "somebody reads it"
            reader.hang_up()
            await reader.done()
            await ticks.pass_(29)
            assert (await got(s, response_id))["status"] == "in_progress"
            await ticks.pass_(2)
            assert (await got(s, response_id))["status"] == "cancelled"

    asyncio.run(story())


def test_who_does_not_ask_is_cancelled_at_once() -> None:
    async def story() -> None:
        async with served(STALLED, manual=True, **AT_ONCE) as s:
            first = s.client.ask(stream=True)
            await first.until(lambda c: len(c.heard) > 1)
            first.hang_up()
            await first.done()
            await settled()
            assert not len(s.runs)

    asyncio.run(story())


def test_a_reader_at_another_server_keeps_it_alive() -> None:
    async def story() -> None:
        async with two(STALLED) as pair:
            _, response_id = await cut(pair.one, 3)
            reader = replay(pair.other, response_id)
            await reader.until(lambda c: len(c.heard) > 1)
            await pair.pass_(100)
            assert (await got(pair.other, response_id))["status"] == "in_progress"
            reader.hang_up()
            await reader.done()
            await pair.pass_(70)
            assert (await got(pair.other, response_id))["status"] == "cancelled"

    asyncio.run(story())


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": True, "stream_options": {"resumable_seconds": "x"}},
        {"stream": True, "stream_options": {"resumable_seconds": 601}},
        {"stream": True, "stream_options": {"resumable_seconds": True}},
        {"stream_options": {"resumable_seconds": 5}},
        {**RESUMABLE, "store": False},
    ],
)
def test_what_cannot_be_resumed_is_refused_by_name(fields: dict[str, Any]) -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            call = await s.client.create(**fields)
            assert (call.status, call.error["param"]) == (400, "stream_options.resumable_seconds")
            assert not s.engine.requests

    asyncio.run(story())


def test_other_apis_refuse_it() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            body = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]} | RESUMABLE
            call = await s.client.send("POST", "/v1/chat/completions", orjson.dumps(body))
            assert call.error["param"] == "stream_options.resumable_seconds"

    asyncio.run(story())


def test_its_server_may_die_with_it() -> None:
    """As a background response, it is lost where no other server may go on with it."""

    class Away(MemoryStore):
        away = False

        async def lock(self, lock: Any, lease_s: float) -> bool:
            if self.away:
                raise ApiError("away")
            return await super().lock(lock, lease_s)

    async def story() -> None:
        ticks, store = Ticks(), Away(Bounds())
        async with served(STALLED, store=store, manual=True, sleep=ticks.sleep, **AT_ONCE) as s:
            _, response_id = await cut(s, 3)
            store.away = True
            await ticks.pass_(31)
            assert (await got(s, response_id))["status"] == "in_progress", "read elsewhere?"
            store.away = False
            await ticks.pass_(31)
            assert (await got(s, response_id))["status"] == "cancelled"

    asyncio.run(story())


def over_a_socket(**fields: object) -> dict[str, Any]:
    return {"stream_options": {"resumable_seconds": 30}} | fields


def test_a_socket_that_was_cut_is_read_again_over_http() -> None:
    async def story() -> None:
        async with served(LONG, manual=True, **AT_ONCE) as s:
            async with connected(s.app) as socket:
                socket.create(input="Hello", stream_id="a", seed=1, **over_a_socket(user="me"))
                await socket.until(lambda one: len(one.frames) > 1)
                await s.clock.step(30)
                await settled()
                socket.leave()
                await socket.done()
            seen = socket.frames
            assert seen[0]["headers"]["x-trt-ignored"] == "user"
            assert all(frame["stream_id"] == "a" for frame in seen)
            response_id = seen[0]["response"]["id"]
            assert (await got(s, response_id))["status"] == "in_progress"
            second = replay(s, response_id, seen[-1]["sequence_number"])
            await rest(s, second)
            numbers = [e["sequence_number"] for e in (*seen, *second.events)]
            assert numbers == list(range(len(numbers)))
            whole = (await replay(s, response_id).done()).events
            plain = [
                {k: v for k, v in e.items() if k not in ("stream_id", "headers")} for e in seen
            ]
            assert [*plain, *second.events] == whole

    asyncio.run(story())


def test_a_socket_that_was_cut_is_read_again_at_another_server() -> None:
    async def story() -> None:
        async with two(STALLED) as pair:
            async with connected(pair.one.app) as socket:
                socket.create(input="Hello", **over_a_socket())
                await socket.until(lambda one: bool(one.frames))
                await pair.one.clock.step(3)
                await settled()
                socket.leave()
                await socket.done()
            reader = replay(pair.other, socket.frames[0]["response"]["id"])
            await reader.until(lambda c: len(c.heard) > 1)
            assert reader.events[0]["type"] == "response.created"
            reader.hang_up()
            await reader.done()

    asyncio.run(story())


def test_over_a_socket_it_is_the_stream_of_any_other_and_goes_on_from_it() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s, connected(s.app) as socket:
            plain = await socket.answer(input="Hello")
            kept = await socket.answer(input="Hello", **over_a_socket())
            assert [e["type"] for e in kept] == [e["type"] for e in plain]
            last = kept[-1]["response"]
            assert last == await got(s, last["id"])
            more = await socket.answer(input="Go on", previous_response_id=last["id"])
            assert more[-1]["type"] == "response.completed"
            (refusal,) = await socket.answer(input="Hello", **over_a_socket(store=False))
            assert refusal["error"]["param"] == "stream_options.resumable_seconds"

    asyncio.run(story())
