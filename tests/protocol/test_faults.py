"""Engines that die, servers that are full or about to stop: what a client is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support import lawful
from tests.support.asgi import JSON, Client, until
from tests.support.replies import check_headers
from tests.support.scripted.engine import Die, Script, ScriptedEngine, Stall
from tests.support.served import ANSWER, CALL, SETTINGS, script, served, squared
from tests.support.turns import turn
from trt_responses.app import create_app
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from tests.support.asgi import Call

DYING = script("<|channel|>final<|message|>Hello th", Die("out of memory"))
STALLED = script("<|channel|>final<|message|>Hold on", Stall())


def check_failed(call: Call, words: str) -> None:
    """A stream that was told the whole truth: the error, then the failed response, then the end."""
    events = call.events
    error, failed = events[-2:]
    assert (error["type"], failed["type"]) == ("error", "response.failed")
    assert words in error["message"]
    assert words in failed["response"]["error"]["message"]
    assert failed["response"]["error"]["code"] == "server_error"
    lawful.check(events, failed["response"])
    assert call.body.endswith(b"data: [DONE]\n\n")


def check_refused(call: Call, status: int) -> None:
    assert call.status == status
    assert int(call.headers["retry-after"]) >= 1
    assert call.headers["content-type"] == "application/json"
    check_headers(call)
    assert call.error["type"] in ("server_error", "too_many_requests")


def test_an_engine_that_fails_a_request_fails_its_response() -> None:
    async def story() -> None:
        async with served(DYING, DYING, ANSWER) as s:
            check_failed(await s.client.create(stream=True), "out of memory")
            plain = await s.client.create()
            assert (plain.status, plain.error["type"]) == (500, "server_error")
            assert "out of memory" in plain.error["message"]
            check_headers(plain)
            assert (await s.client.create()).json()["status"] == "completed"

    asyncio.run(story())


def test_an_engine_that_fails_at_once_fails_its_response() -> None:
    async def story() -> None:
        async with served(Script((Die("no memory at all"),))) as s:
            check_failed(await s.client.create(stream=True), "no memory at all")
            assert (await s.client.create()).status == 500

    asyncio.run(story())


def test_an_engine_that_dies_fails_all_that_runs_and_then_all_is_refused() -> None:
    async def story() -> None:
        async with served(STALLED, manual=True) as s:
            calls = [s.client.ask(stream=True) for _ in range(3)]
            plain = s.client.ask()
            await until(lambda: len(s.engine.requests) == 4)
            await s.clock.step(20)
            s.engine.kill("burnt out")
            for call in calls:
                check_failed(await call.done(), "burnt out")
            assert (await plain.done()).status == 500
            for stream in (False, True):
                check_refused(await s.client.create(stream=stream), 503)
            assert len(s.runs) == 0

    asyncio.run(story())


def test_before_the_engine_has_started_all_is_refused() -> None:
    async def story() -> None:
        app = create_app(Settings(**SETTINGS), engine=ScriptedEngine([script(ANSWER)]))
        client = Client(app)
        check_refused(await client.create(), 503)
        assert (await client.get("/health/ready")).status == 503

    asyncio.run(story())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
def test_more_than_can_run_is_refused_and_what_runs_goes_on(stream: bool) -> None:
    async def story() -> None:
        async with served(ANSWER, manual=True, max_running=2, max_waiting=0) as s:
            first = [s.client.ask(stream=stream) for _ in range(2)]
            await until(lambda: len(s.engine.requests) == 2)
            refused = await s.client.create(stream=stream)
            check_refused(refused, 503)
            assert refused.error["code"] == "server_busy"
            assert refused.headers["x-should-retry"] == "true"
            assert int(refused.headers["retry-after"]) in range(1, 6)
            while not all(call.ended for call in first):
                await s.clock.step()
            assert [call.status for call in first] == [200, 200]
            last = s.client.ask()
            while not last.ended:
                await s.clock.step()
            assert last.status == 200

    asyncio.run(story())


def test_requests_that_come_together_never_pass_the_bound() -> None:
    """Between the check and the count a request is tokenised: none may slip by meanwhile."""

    async def story() -> None:
        async with served(STALLED, manual=True, max_running=4, max_waiting=0) as s:
            calls = [s.client.ask(stream=True, input="word " * 20_000) for _ in range(12)]
            for _ in range(2000):
                await turn()
            running = len(s.engine.requests)
            for call in calls:
                call.hang_up()
            for call in calls:
                await call.done()
            assert running == 4

    asyncio.run(story())


def test_a_server_that_drains_refuses_new_work_and_ends_what_runs() -> None:
    async def story() -> None:
        async with served(ANSWER, CALL, manual=True) as s:
            running = s.client.ask(stream=True)
            await until(lambda: bool(s.engine.requests))
            s.drain()
            check_refused(await s.client.create(), 503)
            assert (await s.client.get("/health/ready")).json()["state"] == "draining"
            assert (await s.client.get("/health/live")).status == 200
            while not running.ended:
                await s.clock.step()
            assert running.events[-1]["type"] == "response.completed"

    asyncio.run(story())


def test_what_still_runs_at_the_deadline_is_failed_with_the_reason() -> None:
    async def story() -> None:
        async with served(STALLED, manual=True) as s:
            stream, plain = s.client.ask(stream=True), s.client.ask()
            await until(lambda: len(s.engine.requests) == 2)
            await s.clock.step(20)
            s.runs.shut_down()
            check_failed(await stream.done(), "was stopped")
            assert (await plain.done()).status == 500
            assert all(request.state == "aborted" for request in s.engine.requests)

    asyncio.run(story())


def test_an_app_that_is_shut_down_ends_every_stream() -> None:
    async def story() -> None:
        async with served(STALLED, manual=True) as s:
            stream = s.client.ask(stream=True)
            await until(lambda: bool(s.engine.requests))
            await s.clock.step(20)
        check_failed(await stream.done(), "The server was stopped")

    asyncio.run(story())


def test_an_input_that_the_context_cannot_hold_is_refused_before_any_token() -> None:
    async def story() -> None:
        async with served(context_tokens=200) as s:
            for text in ("word " * 300, "a" * 10_000, "word " * 120 + "x"):
                call = await s.client.create(input=text, stream=True)
                if call.status == 200:  # it fits: what is left is the budget
                    assert s.last.options.max_tokens == 200 - len(s.prompt())
                    continue
                assert (call.status, call.error["code"]) == (400, "context_length_exceeded")
                assert call.error["param"] == "input"
            assert len(s.engine.requests) == 1

    asyncio.run(story())


def test_an_answer_that_fills_the_context_is_incomplete() -> None:
    async def story() -> None:
        async with served(script("<|channel|>final<|message|>" + " word" * 300)) as s:
            room = 20
            prompt = await s.client.create()
            assert prompt.status == 200
            tokens = len(s.prompt())
        async with served(
            script("<|channel|>final<|message|>" + " word" * 300), context_tokens=tokens + room
        ) as s:
            call = await s.client.create()
            assert call.json()["status"] == "incomplete"
            assert call.json()["usage"]["output_tokens"] == room

    asyncio.run(story())


def test_two_servers_in_one_process_know_nothing_of_each_other() -> None:
    async def story() -> None:
        async with served() as one, served(model="other") as two:
            made = (await one.client.create()).json()["id"]
            assert (await two.client.get(f"/v1/responses/{made}")).status == 404
            assert (await two.client.create()).status == 404
            assert (await two.client.create(model="other")).status == 200
            one.drain()
            assert (await two.client.create(model="other")).status == 200
            assert len(two.engine.requests) == 2

    asyncio.run(story())


def test_64_streams_at_once_get_each_its_own_text() -> None:
    async def story() -> None:
        async with served(squared, max_batch=16) as s:
            calls = [s.client.ask(stream=True, input=f"number={n};") for n in range(64)]
            for number, call in enumerate(calls):
                last = (await call.done()).events[-1]["response"]
                said = last["output"][0]["content"][0]["text"]
                assert said == f"The square is {number * number}."

    asyncio.run(story())


HOSTS = [
    *[("127.0.0.1:8000", 200), ("127.0.0.1", 200), ("localhost:99", 200), ("LOCALHOST", 200)],
    *[("[::1]:8000", 200), ("evil.example", 403), ("127.0.0.1.evil.example", 403), ("", 403)],
    *[("a@localhost", 400), ("evil.example:8000", 403), ("[::2]:8000", 403)],
    *[("localhost.", 403), ("192.168.0.1:8000", 403), ("\xff", 400), ("h" * 9000, 403)],
]
ORIGINS = [
    *[(None, 200), ("http://127.0.0.1:8000", 200), ("http://127.0.0.1:9999", 403)],
    *[("null", 403), ("", 403), ("https://evil.example", 403), ("http://[::1", 403)],
    *[("https://good.example", 200), ("https://good.example.evil", 403), ("file://", 403)],
    *[("http://127.0.0.1:8000.evil.example", 403), ("\xe9", 403), ("x" * 9000, 403)],
]
KEYS = [
    *[("Bearer good", 200), ("bearer good", 200), ("BEARER  good ", 200), ("Bearer bad", 401)],
    *[("", 401), ("Bearer", 401), ("Bearer ", 401), ("Basic good", 401), ("good", 401)],
    *[("Bearer good good", 401), ("Bearer GOOD", 401), ("Bearer \xe9", 401), ("Bearer ann", 401)],
]
GUARDED = [
    *[("POST", "/v1/responses"), ("GET", "/v1/responses/x"), ("DELETE", "/v1/responses/x")],
    *[("GET", "/v1/models"), ("GET", "/v1/models/demo")],
]


def test_foreign_hosts_are_refused() -> None:
    async def story() -> None:
        async with served() as s:
            for host, status in HOSTS:
                call = await s.client.send("GET", "/v1/models", headers={"host": host})
                assert call.status == status, host[:80]
                code = {403: "host_not_allowed", 400: "invalid_host"}.get(status)
                assert code is None or call.error["code"] == code
                assert len(call.body) < 1000
            bare = await s.client.send("GET", "/v1/models", headers={})
            assert bare.status == 400  # HTTP/1.1 asks for one

    asyncio.run(story())


def test_foreign_origins_are_refused() -> None:
    async def story() -> None:
        async with served(allowed_origins="https://good.example") as s:
            for origin, status in ORIGINS:
                headers = JSON if origin is None else JSON | {"origin": origin}
                call = await s.client.send("GET", "/v1/models", headers=headers)
                assert call.status == status, (origin or "")[:80]
                assert status == 200 or call.error["code"] == "origin_not_allowed"
                assert len(call.body) < 1000

    asyncio.run(story())


def test_a_key_is_asked_for_everywhere_but_for_health_and_the_description() -> None:
    async def story() -> None:
        async with served(api_keys="ann:good") as s:
            for value, status in KEYS:
                headers = JSON | {"authorization": value}
                call = await s.client.send("GET", "/v1/models", headers=headers)
                assert call.status == status, value
                assert status == 200 or call.error["code"] == "invalid_api_key"
                assert "good" not in call.body.decode()
            for method, path in GUARDED:
                call = await s.client.send(method, path)
                assert call.status == 401, path
                check_headers(call)
            for path in ("/health/live", "/health/ready", "/docs", "/openapi.json"):
                assert (await s.client.get(path)).status == 200

    asyncio.run(story())
