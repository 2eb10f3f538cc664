"""Requests that come twice under one key make one response. Budget: 4 s on one core."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import JSON, asked
from tests.support.background import AT_ONCE, ended
from tests.support.files import FORM, form
from tests.support.scripted.engine import Die
from tests.support.served import ANSWER, STALLED, THOUGHT, script, served
from tests.support.ticks import settled
from trt_responses.stores.memory.store import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.asgi import Call
    from tests.support.served import Served


def ask(s: Served, key: str, owner: str | None = None, **fields: Any) -> Call:
    headers = JSON | {"idempotency-key": key}
    if owner is not None:
        headers |= {"authorization": f"Bearer {owner}"}
    return s.client.open("POST", "/v1/responses", orjson.dumps(asked(**fields)), headers)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_a_retry_while_the_first_goes_on_gets_the_same_response(stream: bool) -> None:
    async def story() -> None:
        store = MemoryStore()
        async with served(THOUGHT, store=store, manual=True) as s:
            first = ask(s, "k", stream=stream)
            await settled()
            await s.clock.step(5)
            second = ask(s, "k", stream=stream)
            await settled()
            while not (first.ended and second.ended):
                await s.clock.step()
            assert len(s.engine.requests) == 1
            assert len(store) == 1
            assert first.body == second.body
            assert "x-trt-idempotent-replay" not in first.headers
            assert second.headers["x-trt-idempotent-replay"] == "true"

    asyncio.run(story())


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_a_retry_after_the_end_gets_the_same_response(stream: bool) -> None:
    async def story() -> None:
        store = MemoryStore()
        async with served(THOUGHT, store=store) as s:
            first = await ask(s, "k", stream=stream).done()
            again = await ask(s, "k", stream=stream).done()
            other = await ask(s, "k2", stream=stream).done()
            assert first.body == again.body
            assert first.body != other.body
            assert len(s.engine.requests) == len(store) == 2

    asyncio.run(story())


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_a_first_that_hangs_up_does_not_end_what_a_retry_reads(stream: bool) -> None:
    async def story() -> None:
        async with served(THOUGHT, manual=True) as s:
            first = ask(s, "k", stream=stream)
            await settled()
            second = ask(s, "k", stream=stream)
            await settled()
            await s.clock.step(3)
            first.hang_up()
            await settled()
            assert s.last.state == "running"
            while not second.ended:
                await s.clock.step()
            last = second.events[-1]["response"] if stream else second.json()
            assert last["status"] == "completed"
            assert len(s.engine.requests) == 1
            await first.done()

    asyncio.run(story())


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_when_all_have_hung_up_it_ends_and_a_later_retry_makes_another(stream: bool) -> None:
    async def story() -> None:
        async with served(STALLED, ANSWER, manual=True) as s:
            calls = [ask(s, "k", stream=stream) for _ in range(3)]
            await settled()
            await s.clock.step(3)
            for call in calls:
                assert s.last.state == "running"
                call.hang_up()
                await settled()
            assert s.last.state == "aborted"
            for call in calls:
                await call.done()
            assert len(s.runs) == 0
            again = ask(s, "k", stream=stream)
            while not again.ended:
                await s.clock.step()
            last = again.events[-1]["response"] if stream else again.json()
            assert last["status"] == "completed"

    asyncio.run(story())


VIEWS = ("/v1/chat/completions", "/v1/messages")
EITHER = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100}
"""A body that both of them take."""


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("path", VIEWS)
def test_the_other_views_make_one_of_two_as_well(path: str, stream: bool) -> None:
    def open_one(s: Served, key: str = "k", to: str = path, **fields: Any) -> Call:
        body = orjson.dumps(EITHER | {"stream": stream} | fields)
        return s.client.open("POST", to, body, JSON | {"idempotency-key": key})

    async def story() -> None:
        async with served(THOUGHT, manual=True) as s:
            first, second = open_one(s), open_one(s)
            await settled()
            await s.clock.step(5)
            first.hang_up()
            await settled()
            while not second.ended:
                await s.clock.step()
            third = await open_one(s).done()
            assert second.status == third.status == 200
            assert second.body == third.body
            assert b"friend" in second.body
            assert third.headers["x-trt-idempotent-replay"] == "true"
            assert "idempotency-key" not in third.headers.get("x-trt-ignored", "")
            other = next(each for each in VIEWS if each != path)
            for reused in (open_one(s, temperature=0.5), open_one(s, to=other)):
                assert (await reused.done()).status == 400
            assert len(s.engine.requests) == 1
            await first.done()

    asyncio.run(story())


def test_one_key_stands_for_one_request_of_one_owner() -> None:
    async def story() -> None:
        async with served(api_keys="a:k1,b:k2") as s:
            await ask(s, "k", "k1").done()
            for other in ({"input": "Bye"}, {"stream": True}, {"seed": 1}):
                call = await ask(s, "k", "k1", **other).done()
                assert (call.status, call.error["code"]) == (400, "idempotency_key_reused")
            assert (await ask(s, "k", "k2", input="Bye").done()).status == 200
            assert len(s.engine.requests) == 2

    asyncio.run(story())


@pytest.mark.parametrize("key", ["", "x" * 256], ids=["empty", "long"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    async def story() -> None:
        async with served() as s:
            call = await ask(s, key).done()
            assert (call.status, call.error["code"]) == (400, "invalid_idempotency_key")
            assert (await ask(s, "x" * 255).done()).status == 200

    asyncio.run(story())


@pytest.mark.parametrize(
    ("path", "body", "kind", "ignored"),
    [
        ("/v1/conversations", b'{"zz": 1}', "application/json", "zz, "),
        ("/v1/responses/compact", orjson.dumps(asked()), "application/json", ""),
        ("/v1/files", form(b"x", zz="1"), FORM, "zz, "),
    ],
)
def test_where_no_reply_is_kept_the_key_is_named_as_ignored(
    path: str, body: bytes, kind: str, ignored: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with served(data_dir=tmp_path) as s:
            headers = JSON | {"content-type": kind, "idempotency-key": "k"}
            call = await s.client.send("POST", path, body, headers)
            assert call.headers["x-trt-ignored"] == f"{ignored}idempotency-key"

    asyncio.run(story())


def test_what_failed_is_made_anew() -> None:
    async def story() -> None:
        async with served(script("<|channel|>final<|message|>Oh", Die("broke")), ANSWER) as s:
            assert (await ask(s, "k").done()).status == 500
            assert (await ask(s, "k").done()).json()["status"] == "completed"

    asyncio.run(story())


@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_what_was_deleted_is_made_anew(background: bool) -> None:
    async def story() -> None:
        async with served(manual=background, **AT_ONCE) as s:
            more: dict[str, Any] = {"background": background}
            first, other = [(await ask(s, key, **more).done()).json()["id"] for key in "kl"]
            await ended(s, first)
            deleted = await s.client.send("DELETE", f"/v1/responses/{first}")
            assert deleted.status == 200
            again = await ask(s, "k", **more).done()
            assert again.json()["id"] != first
            assert "x-trt-idempotent-replay" not in again.headers
            assert (await ask(s, "l", **more).done()).json()["id"] == other

    asyncio.run(story())


def test_what_was_refused_is_asked_anew() -> None:
    async def story() -> None:
        async with served() as s:
            s.drain()
            assert (await ask(s, "k").done()).status == 503
            s.lifecycle.start()
            s.lifecycle.ready()
            assert (await ask(s, "k").done()).status == 200

    asyncio.run(story())


def test_those_that_wait_for_a_first_that_is_refused_hear_why() -> None:
    async def story() -> None:
        class Away(MemoryStore):
            def __init__(self) -> None:
                super().__init__()
                self.may = asyncio.Event()

            async def check(self) -> None:
                await self.may.wait()
                raise OSError("gone")

        store = Away()
        async with served(store=store) as s:
            calls = [ask(s, "k") for _ in range(2)]
            await settled()
            store.may.set()
            assert [(await call.done()).status for call in calls] == [500, 500]

    asyncio.run(story())


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_a_background_response_is_not_made_twice(stream: bool) -> None:
    async def story() -> None:
        more: dict[str, Any] = {"background": True, "stream": stream}
        async with served(THOUGHT, manual=True, **AT_ONCE) as s:
            first, second = ask(s, "k", **more), ask(s, "k", **more)
            await settled()
            while not (first.ended and second.ended):
                await s.clock.step()
            if stream:
                assert first.body == second.body
            else:
                assert first.json()["id"] == second.json()["id"]
                third = (await ask(s, "k", **more).done()).json()
                assert third["id"] == first.json()["id"]
            assert len(s.engine.requests) == 1

    asyncio.run(story())


def test_what_is_remembered_is_the_answer_and_not_the_conversation_before_it() -> None:
    async def story() -> None:
        async with served(explain="off") as s:
            await ask(s, "k", input="Hello " * 1000).done()
            await settled()
            holders = sys.getrefcount(s.last.prompt_ids)
            assert holders == 2, "the engine's record, and the call that counts"

    asyncio.run(story())


def test_the_table_is_bounded_by_number() -> None:
    async def story() -> None:
        async with served(idempotency_keys=2) as s:
            first = (await ask(s, "1").done()).json()["id"]
            for key in ("2", "3"):
                await ask(s, key).done()
            assert (await ask(s, "1").done()).json()["id"] != first

    asyncio.run(story())


def test_one_that_is_dropped_is_let_go_and_the_other_gets_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first takes nothing and is dropped; then it hangs up, which is not counted again."""

    async def story() -> None:
        async with served(THOUGHT, manual=True, max_backlog_bytes=300) as s:
            first = ask(s, "k", stream=True)
            await settled()
            second = ask(s, "k", stream=True)
            await settled()
            first.reading.clear()
            while not first.ended:
                assert not second.ended, "a dropped client is held until the run's end"
                await s.clock.step()
            first.hang_up()
            await settled()
            assert s.last.state == "running"
            while not second.ended:
                await s.clock.step()
            assert second.events[-1]["type"] == "response.completed"
            assert len(s.runs) == 0

    asyncio.run(story())
    assert "reads too slowly" in caplog.text


def test_a_stop_ends_what_is_made_under_a_key() -> None:
    async def story() -> None:
        async with served(STALLED, manual=True) as s:
            calls = [ask(s, "k", stream=stream) for stream in (False, True)]
            await settled()
            await s.clock.step(3)
        for call in calls:
            await call.done()
        assert len(s.runs) == 0
        assert s.last.state == "aborted"

    asyncio.run(story())
