"""HTTP as clients really send it, over real sockets: badly, endlessly, and offering upgrades.

About 3 s in all on one core.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.support.asgi import PATIENCE_S, asked, until
from tests.support.raw_http import ASK, HEADER_BYTES, OFFER, Wire, ask, refused
from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
from tests.support.served import ANSWER, SETTINGS, STALLED, script, vocabulary
from tests.support.serving import serving
from tests.support.turns import turn
from trt_responses.app import create_app
from trt_responses.features.connections.protocol import protocol
from trt_responses.run.parts import mint
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@asynccontextmanager
async def listening(written: Script) -> AsyncIterator[tuple[ScriptedEngine, Wire]]:
    engine = ScriptedEngine([written], clock=StepClock.manual(settle_turns=40))
    app = create_app(Settings(**SETTINGS), engine=engine)
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(
            app, http=protocol(mint, max_header_bytes=HEADER_BYTES, read_timeout_s=60)
        ) as address,
        Wire.to(address) as wire,
    ):
        yield engine, wire


async def begun(engine: ScriptedEngine, wire: Wire, *, stream: bool) -> None:
    """A reply has been asked for, and five of its ids are there."""
    wire.ask(stream=stream)
    await until(lambda: bool(engine.requests))
    await engine.clock.step(5)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40,  # TLS, to a plain port
        b"Hello?\r\n\r\n",
        b"POST /v1/responses HTTP/9.9\r\n\r\n",
        ASK + b"content-length: many\r\n\r\n{}",
        ASK + b"transfer-encoding: chunked\r\n\r\nnot a length\r\n",
        ASK + b"no colon\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_an_error_in_the_apis_shape(sent: bytes) -> None:
    async def story() -> None:
        async with listening(script(ANSWER)) as (engine, wire):
            wire.send(sent)
            assert await refused(wire) == (400, "invalid_http")
            assert not engine.requests

    asyncio.run(story())


@pytest.mark.parametrize(
    "endless", [b"x-long: " + b"a" * 3_000, b"x-short: a\r\n" * 300, b"x" * 3_000]
)
def test_a_head_that_does_not_end_is_refused(endless: bytes) -> None:
    async def story() -> None:
        async with listening(script(ANSWER)) as (_, wire):
            wire.send(ASK + endless)
            status, code = await refused(wire)
            assert (status, code) == (431, "headers_too_large")

    asyncio.run(story())


@pytest.mark.parametrize(
    "long", [b"x-long: " + b"a" * 3_000, b"x-short: a\r\n" * 300 + b"x: y", b"a" * 3_000 + b": b"]
)
@pytest.mark.parametrize("first", [b"", b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"])
def test_a_head_that_comes_whole_in_one_read_is_bounded_too(long: bytes, first: bytes) -> None:
    async def story() -> None:
        async with listening(script(ANSWER)) as (engine, wire):
            if first:
                wire.send(first)
                assert await wire.status() == 200
                await wire.reader.readuntil(b'{"status":"ok"}')
            head, body = ask(orjson.dumps(asked()), long + b"\r\n", chunked=False)
            wire.send(head + body)
            assert await refused(wire) == (431, "headers_too_large")
            assert not engine.requests

    asyncio.run(story())


def test_a_long_path_is_part_of_the_head() -> None:
    async def story() -> None:
        async with listening(script(ANSWER)) as (_, wire):
            wire.send(b"GET /" + b"a" * 3_000 + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert await refused(wire) == (431, "headers_too_large")

    asyncio.run(story())


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nhost: 127.0.0.1\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nHost: evil.example\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nhost: localhost:80@evil.example\r\n", 400),
        (b"GET http://evil.example/v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n", 403),
        (b"GET http://127.0.0.1@evil.example/v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n", 400),
        (b"GET http://127.0.0.1/v1/models HTTP/1.1\r\nhost: evil.example\r\n", 200),
        (b"GET http://localhost:8000?x=y HTTP/1.1\r\nhost: evil.example\r\n", 400),
        (b"GET /v1/models?x=http://evil.example HTTP/1.1\r\nhost: 127.0.0.1\r\n", 200),
    ],
)
def test_a_request_names_one_host_which_is_this_server(head: bytes, status: int) -> None:
    async def story() -> None:
        async with listening(script(ANSWER)) as (_, wire):
            wire.send(head + b"\r\n")
            assert await wire.status() == status

    asyncio.run(story())


@pytest.mark.parametrize("path", [b"/v1/responses", b"/nowhere"])
def test_a_websocket_is_refused_at_once_with_a_426(
    path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """At any other status a coding agent tries again for seconds before it goes on over HTTP."""

    async def story() -> None:
        async with listening(script(ANSWER)) as (engine, wire):
            wire.send(
                b"GET %b HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: keep-alive, Upgrade\r\n"
                b"upgrade: WebSocket\r\nsec-websocket-version: 13\r\n"
                b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" % path
            )
            assert await refused(wire) == (426, "websocket_not_supported")
            assert not engine.requests
            assert not caplog.records

    asyncio.run(story())


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("cut", [0, 30, -40, -1], ids=["whole", "in_head", "in_body", "near_end"])
def test_an_offered_upgrade_costs_a_request_nothing_of_its_body(chunked: bool, cut: int) -> None:
    async def story() -> None:
        async with listening(script(ANSWER)) as (engine, wire):
            engine.clock.mode = "free"
            for number, more in enumerate((OFFER, b"", OFFER)):
                text = f"number {number}"
                body = orjson.dumps({"model": SETTINGS["model"], "input": text})
                sent = b"".join(ask(body, more, chunked=chunked))
                for part in (sent[:cut], sent[cut:]) if cut else (sent,):
                    wire.send(part)
                    await turn(20)
                assert await wire.status() == 200
                await wire.reader.readuntil(b'"object":"response"}')
                prompt = vocabulary().text(list(engine.requests[-1].prompt_ids))
                assert text in prompt

    asyncio.run(story())


def test_offers_that_come_at_once_are_answered_one_after_the_other() -> None:
    async def story() -> None:
        async with listening(script(ANSWER)) as (engine, wire):
            engine.clock.mode = "free"
            body = orjson.dumps({"model": SETTINGS["model"], "input": "Hi"})
            wire.send(b"".join(ask(body, OFFER, chunked=False)) * 5)
            for _ in range(5):
                assert await wire.status() == 200
                await wire.reader.readuntil(b'"object":"response"}')

    asyncio.run(story())


def test_no_end_of_offers_at_once_is_read() -> None:
    async def story() -> None:
        async with listening(script(ANSWER)) as (engine, wire):
            head, body = ask(b"{}", OFFER, chunked=False)
            wire.send((head + body) * 50)
            assert b"HTTP/1.1" not in await wire.reader.read()
            assert not engine.requests

    asyncio.run(story())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("leave", [Wire.close, Wire.reset], ids=["close", "reset"])
def test_a_client_that_leaves_is_heard_with_another_of_its_requests_waiting(
    stream: bool, leave: Callable[[Wire], None]
) -> None:
    async def story() -> None:
        async with listening(STALLED) as (engine, wire):
            await begun(engine, wire, stream=stream)
            wire.send(b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            await engine.clock.step(2)
            leave(wire)
            await until(lambda: engine.requests[0].state != "running")
            assert engine.requests[0].state == "aborted"

    asyncio.run(story())


def test_what_stands_behind_a_last_request_is_no_fault_of_it() -> None:
    async def story() -> None:
        async with listening(script(ANSWER)) as (_, wire):
            wire.send(
                b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: h2c\r\n"
                b"connection: close, upgrade\r\n\r\nmore"
            )
            assert await wire.status() == 200

    asyncio.run(story())


@pytest.mark.parametrize("method", [b"CONNECT 127.0.0.1:80", b"CONNECT /"])
def test_a_proxy_s_request_is_refused(method: bytes) -> None:
    async def story() -> None:
        async with listening(script(ANSWER)) as (_, wire):
            wire.send(method + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert await refused(wire) == (400, "invalid_http")

    asyncio.run(story())


def test_a_body_may_be_larger_than_a_head_however_it_comes() -> None:
    async def story() -> None:
        async with listening(script(ANSWER)) as (
            engine,
            wire,
        ):
            for _ in range(2):  # and so may the next one on the same connection
                body = orjson.dumps({"model": SETTINGS["model"], "input": " word" * 20_000})
                length = b"content-length: %d\r\n" % len(body)
                wire.send(ASK + length + b"content-type: application/json\r\n\r\n")
                for at in range(0, len(body), 1_500):
                    wire.send(body[at : at + 1_500])
                    await turn()
                count = len(engine.requests)
                await until(lambda count=count: len(engine.requests) > count)  # type: ignore[misc]
                await engine.clock.step(10)
                assert await wire.status() == 200
                await wire.reader.readuntil(b'"object":"response"}')

    asyncio.run(story())


def test_a_reply_that_has_begun_is_ended_and_not_mixed_with_another() -> None:
    async def story() -> None:
        async with listening(STALLED) as (engine, wire):
            await begun(engine, wire, stream=True)
            assert await wire.status() == 200
            wire.send(b"\x00 no HTTP\r\n\r\n")
            rest = await wire.reader.read()
            assert b"HTTP/1.1" not in rest
            await until(lambda: engine.requests[0].state == "aborted")

    asyncio.run(story())


def test_a_later_head_of_a_connection_is_bounded_too() -> None:
    async def story() -> None:
        async with listening(script(ANSWER)) as (_, wire):
            wire.send(b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert await wire.status() == 200
            wire.send(ASK + b"x-long: " + b"a" * HEADER_BYTES)
            assert b'"code":"headers_too_large"' in await wire.reader.read()

    asyncio.run(story())


def test_a_reply_is_not_mixed_with_an_error_when_another_request_waits_behind_it() -> None:
    async def story() -> None:
        async with listening(script(ANSWER)) as (engine, wire):
            await begun(engine, wire, stream=True)
            assert await wire.status() == 200
            wire.send(b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n\0 no HTTP\r\n\r\n")
            rest = await wire.reader.read()
            assert b"HTTP/1.1" not in rest

    asyncio.run(story())


def test_an_offer_in_http_1_0_is_answered_as_http_1_0() -> None:
    async def story() -> None:
        async with listening(script(ANSWER)) as (_, wire):
            wire.send(
                b"GET /health/live HTTP/1.0\r\nhost: 127.0.0.1\r\n"
                b"connection: upgrade\r\nupgrade: h2c\r\n\r\n"
            )
            head = await wire.reader.readuntil(b"\r\n\r\n")
            assert b"connection: close" in head.lower()

    asyncio.run(story())
