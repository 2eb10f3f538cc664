"""Clients that say nothing, or half a thing, over real sockets and by a clock that tests move on.

Budget: 6 s in all on one core.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.server import ServerState

from tests.support.asgi import PATIENCE_S, asked, events_of, living, until
from tests.support.raw_http import ASK, HEADER_BYTES, OFFER, Wire, ask, news_has_come, refused
from tests.support.scripted.engine import ScriptedEngine, StepClock
from tests.support.served import ANSWER, SETTINGS, STALLED, script, wide
from tests.support.serving import Address, our_server
from trt_responses.app import create_app
from trt_responses.features.connections.protocol import protocol
from trt_responses.features.connections.silence import DROPPED_BYTES, PIECE_BYTES
from trt_responses.run.parts import mint
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from tests.support.scripted.engine import Script
    from trt_responses.features.connections.protocol import Protocol

WITHIN_S = 60
BODY = orjson.dumps(asked())
HEAD, _ = ask(BODY, b"", chunked=False)
ALIVE = b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
TOO_SLOW = (408, "request_timeout")
OWN = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\n"
"""To an app of the test's own."""


class Alarm:
    def __init__(self, ring: Callable[[], None]) -> None:
        self.ring: Callable[[], None] | None = ring

    def cancel(self) -> None:
        self.ring = None


class Hands:
    """A clock that a test moves on."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._order = itertools.count()
        self._alarms: list[tuple[float, int, Alarm]] = []
        self.set = 0

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Alarm:
        self.set += 1
        alarm = Alarm(callback)
        heapq.heappush(self._alarms, (self._now + delay, next(self._order), alarm))
        return alarm

    def pass_(self, seconds: float) -> None:
        until = self._now + seconds
        while self._alarms and self._alarms[0][0] <= until:
            self._now, _, alarm = heapq.heappop(self._alarms)
            if alarm.ring is not None:
                alarm.ring()
        self._now = until

    @property
    def pending(self) -> int:
        return sum(alarm.ring is not None for _, _, alarm in self._alarms)


class Line:
    """A connection to a server, and the clock that this goes by."""

    def __init__(self, wire: Wire, address: Address, clock: Hands) -> None:
        self.wire = wire
        self.address = address
        self.clock = clock
        self._tasks = asyncio.all_tasks()

    async def send(self, data: bytes) -> None:
        """When it returns, the server has read it."""
        self.wire.send(data)
        await news_has_come(self.address)

    async def open_after(self, seconds: float) -> None:
        """Let time pass; the connection lives, and nothing was said."""
        self.clock.pass_(seconds)
        await news_has_come(self.address)
        assert await self.wire.is_open_and_silent()

    async def left_nothing(self) -> None:
        """Neither a task nor a timer."""
        await until(lambda: asyncio.all_tasks() <= self._tasks and self.clock.pending == 0)


@asynccontextmanager
async def heard(app: ASGIApp, http: type[Protocol]) -> AsyncIterator[Address]:
    """A server's sockets, without its life: that would take a fifth of a second to end."""
    config = uvicorn.Config(
        app, http=http, ws="none", log_level="warning", timeout_keep_alive=PATIENCE_S
    )
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: http(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with server:
        yield Address(*server.sockets[0].getsockname())
    await until(lambda: not state.connections and not state.tasks)


@asynccontextmanager
async def line_to(app: ASGIApp) -> AsyncIterator[Line]:
    clock = Hands()
    http = protocol(mint, max_header_bytes=HEADER_BYTES, read_timeout_s=WITHIN_S, clock=clock)
    async with asyncio.timeout(PATIENCE_S), living(app), heard(app, http) as address:
        async with Wire.to(address) as wire:
            line = Line(wire, address, clock)
            await news_has_come(address)
            yield line
        await line.left_nothing()


@asynccontextmanager
async def line(
    written: Script | str = ANSWER, **settings: Any
) -> AsyncIterator[tuple[ScriptedEngine, Line]]:
    said = script(written) if isinstance(written, str) else written
    engine = ScriptedEngine([said], clock=StepClock.manual(settle_turns=40))
    app = create_app(Settings(**(SETTINGS | settings)), engine=engine)
    async with line_to(app) as opened:
        yield engine, opened


class _Raw:
    """An app as a route's endpoint."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, *call: Any) -> None:
        await self._app(*call)


def own(endpoint: Any) -> ASGIApp:
    """An app that is alive, and has this endpoint."""
    alive = Route("/health/live", lambda _: Response())
    return Starlette(routes=[alive, Route("/", endpoint, methods=["POST"])])


def busy(engine: ScriptedEngine) -> bool:
    return any(request.state in ("waiting", "running") for request in engine.requests)


async def answer(engine: ScriptedEngine, opened: Line) -> None:
    """The request is whole, and is answered."""
    await until(lambda: busy(engine))
    await engine.clock.step(10)
    assert await opened.wire.status() == 200
    await opened.wire.reader.readuntil(b'"object":"response"}')


@pytest.mark.parametrize("said", [b"", b"\r\n"], ids=["nothing", "blank"])
def test_a_connection_that_begins_no_request_is_closed_without_a_word(said: bytes) -> None:
    async def story() -> None:
        async with line() as (_, opened):
            await opened.open_after(WITHIN_S - 1)
            await opened.send(said)
            opened.clock.pass_(1)
            assert await opened.wire.reader.read() == b""

    asyncio.run(story())


@pytest.mark.parametrize("begun", [b"P", ASK[:-5], ASK, OFFER.join([ASK, b""])])
def test_a_head_has_its_time_from_its_first_byte_and_a_drip_does_not_prolong_it(
    begun: bytes,
) -> None:
    async def story() -> None:
        async with line() as (_, opened):
            await opened.open_after(WITHIN_S / 2)
            await opened.send(begun[:1])
            await opened.open_after(WITHIN_S - 1)
            await opened.send(begun[1:])
            opened.clock.pass_(1)
            assert await refused(opened.wire) == TOO_SLOW

    asyncio.run(story())


@pytest.mark.parametrize(("more", "chunked"), [(b"", False), (b"", True), (OFFER, True)])
def test_a_request_whose_every_part_takes_nearly_its_time_is_answered(
    more: bytes, chunked: bool
) -> None:
    async def story() -> None:
        async with line() as (engine, opened):
            head, body = ask(BODY, more, chunked=chunked)
            for part in (head[:10], head[10:] + body[:1], body[1:]):
                await opened.open_after(WITHIN_S - 1)
                await opened.send(part)
            await answer(engine, opened)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("more", "chunked", "cut"),
    [(b"", False, 0), (b"", True, 0), (b"", True, 9), (b"", True, -1), (OFFER, False, 9)],
)
def test_a_body_that_pauses_gets_a_408_and_leaves_nothing(
    more: bytes, chunked: bool, cut: int
) -> None:
    async def story() -> None:
        async with line() as (engine, opened):
            head, body = ask(BODY, more, chunked=chunked)
            await opened.send(head + body[:cut])
            await opened.open_after(WITHIN_S - 1)
            opened.clock.pass_(1)
            assert await refused(opened.wire) == TOO_SLOW
            await opened.left_nothing()
            assert not busy(engine)

    asyncio.run(story())


def test_a_drip_is_no_upload() -> None:
    async def story() -> None:
        async with line() as (_, opened):
            await opened.send(
                ASK + b"content-type: application/json\r\ncontent-length: 9999\r\n\r\n"
            )
            for _ in range(3):
                await opened.open_after(WITHIN_S / 4)
                await opened.send(b"{" + b" " * 99)
            opened.clock.pass_(WITHIN_S / 4)
            assert await refused(opened.wire) == TOO_SLOW

    asyncio.run(story())


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_slow_upload_goes_on_as_long_as_it_brings_enough(chunked: bool) -> None:
    async def story() -> None:
        async with line() as (engine, opened):
            head, body = ask(BODY + b" " * PIECE_BYTES * 8, b"", chunked=chunked)
            await opened.send(head)
            for at in range(0, len(body), PIECE_BYTES // 2 + 100):
                await opened.open_after(WITHIN_S / 2 - 1)
                await opened.send(body[at : at + PIECE_BYTES // 2 + 100])
            await answer(engine, opened)

    asyncio.run(story())


BEHIND = {
    "nothing": b"",
    "half_a_head": ASK,
    "half_a_body": HEAD + BODY[:9],
    "whole_and_half": ALIVE + HEAD,
}


@pytest.mark.parametrize(
    ("stream", "behind"), [(False, "nothing"), *((True, behind) for behind in BEHIND)]
)
def test_nobody_is_cut_while_an_answer_is_made(stream: bool, behind: str) -> None:
    async def story() -> None:
        async with line() as (engine, opened):
            opened.wire.ask(stream=stream)
            await until(lambda: bool(engine.requests))
            await opened.send(BEHIND[behind])
            for _ in range(3):
                opened.clock.pass_(36_000)
                await engine.clock.step(2)
                assert busy(engine)
            await engine.clock.step(10)
            assert await opened.wire.status() == 200
            if stream:
                assert events_of(await opened.wire.chunks())[-1]["type"] == "response.completed"
            else:
                await opened.wire.reader.readuntil(b'"object":"response"}')

    asyncio.run(story())


@pytest.mark.parametrize(
    ("behind", "rest", "comes"),
    [(ASK, HEAD[len(ASK) :] + BODY, False), (HEAD + BODY[:9], BODY[9:], True)],
)
def test_half_a_request_behind_an_answer_has_its_time_from_the_end_of_that(
    behind: bytes, rest: bytes, comes: bool
) -> None:
    async def story() -> None:
        async with line() as (engine, opened):
            opened.wire.ask()
            await until(lambda: bool(engine.requests))
            await opened.send(behind)
            opened.clock.pass_(WITHIN_S * 1.5)
            await answer(engine, opened)
            await opened.open_after(WITHIN_S - 1)
            if comes:
                await opened.send(rest)
                await answer(engine, opened)
            else:
                opened.clock.pass_(1)
                assert await refused(opened.wire) == TOO_SLOW

    asyncio.run(story())


def test_a_request_that_is_whole_as_its_time_ends_is_answered() -> None:
    async def story() -> None:
        async with line() as (engine, opened):
            await opened.send(HEAD + BODY[:-1])
            opened.clock.pass_(WITHIN_S - 0.5)
            await opened.send(BODY[-1:])
            opened.clock.pass_(0.5)
            opened.clock.pass_(WITHIN_S)
            await answer(engine, opened)

    asyncio.run(story())


def test_a_connection_sets_one_timer_however_much_it_asks() -> None:
    async def story() -> None:
        async with line() as (engine, opened):
            engine.clock.mode = "free"
            before = opened.clock.set
            for _ in range(5):
                opened.wire.ask(stream=True)
                assert await opened.wire.status() == 200
                await opened.wire.chunks()
            assert opened.clock.set == before

    asyncio.run(story())


def test_a_further_request_of_a_connection_has_a_time_of_its_own() -> None:
    async def story() -> None:
        async with line() as (engine, opened):
            await opened.open_after(WITHIN_S - 5)
            opened.wire.ask()
            await answer(engine, opened)
            await opened.send(ASK)
            await opened.open_after(WITHIN_S - 1)
            opened.clock.pass_(1)
            assert await refused(opened.wire) == TOO_SLOW

    asyncio.run(story())


def test_blank_lines_behind_an_answer_keep_no_connection() -> None:
    async def story() -> None:
        async with line() as (engine, opened):
            opened.clock.pass_(WITHIN_S / 2)
            opened.wire.ask()
            await answer(engine, opened)
            await opened.send(b"\r\n")
            await opened.open_after(WITHIN_S - 1)
            await opened.send(b"\r\n")
            opened.clock.pass_(1)
            assert await opened.wire.reader.read() == b""

    asyncio.run(story())


@pytest.mark.parametrize("goes_on", [True, False])
def test_who_was_told_to_go_on_has_the_same_time(goes_on: bool) -> None:
    async def story() -> None:
        async with line() as (engine, opened):
            head, body = ask(BODY, b"expect: 100-continue\r\n", chunked=False)
            opened.wire.send(head)
            assert await opened.wire.status() == 100
            await opened.open_after(WITHIN_S - 1)
            if goes_on:
                await opened.send(body)
                opened.clock.pass_(WITHIN_S)
                await answer(engine, opened)
            else:
                opened.clock.pass_(1)
                assert await refused(opened.wire) == TOO_SLOW

    asyncio.run(story())


@pytest.mark.parametrize("leave", [Wire.close, Wire.reset], ids=["close", "reset"])
@pytest.mark.parametrize("sent", [ASK, HEAD + BODY], ids=["half", "whole"])
def test_a_client_that_leaves_leaves_no_timer(sent: bytes, leave: Callable[[Wire], None]) -> None:
    async def story() -> None:
        async with line(STALLED) as (_, opened):
            await opened.send(sent)
            await until(lambda: opened.clock.pending == 1)
            leave(opened.wire)
            await opened.left_nothing()
            assert opened.clock.pending == 0

    asyncio.run(story())


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_client_is_not_to_blame_for_an_app_that_does_not_read(goes_on: bool) -> None:
    """Its body is more than the server takes for an app that does not want it yet."""

    async def story() -> None:
        wants = asyncio.Event()

        async def slow(request: Request) -> Response:
            await wants.wait()
            return Response(str(len(await request.body())))

        async with line_to(own(slow)) as opened:
            await opened.send(OWN + b"content-length: 90001\r\n\r\n" + b" " * 90_000)
            await opened.open_after(WITHIN_S * 10.5)
            wants.set()
            await opened.open_after(0)
            await opened.open_after(WITHIN_S - 1)
            if goes_on:
                await opened.send(b" ")
                assert await opened.wire.status() == 200
            else:
                opened.clock.pass_(1)
                assert await refused(opened.wire) == TOO_SLOW

    asyncio.run(story())


@pytest.mark.parametrize("gone_before", [0, 1])
def test_a_408_is_never_said_in_the_middle_of_a_reply_and_cuts_none(gone_before: int) -> None:
    """The app begins its reply, and ends it, without the body that was promised."""

    async def story() -> None:
        ends = asyncio.Event()

        async def early(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await ends.wait()
            await send({"type": "http.response.body", "body": b"all"})

        async with line_to(own(_Raw(early))) as opened:
            await opened.send(OWN + b"content-length: 9\r\n\r\n1")
            assert await opened.wire.status() == 200
            await opened.open_after(WITHIN_S * 3)
            ends.set()
            assert await opened.wire.chunks() == b"all"
            if gone_before:
                await opened.send(b"2")
            opened.clock.pass_(WITHIN_S)
            assert await opened.wire.reader.read() == b""

    asyncio.run(story())


LAST = [b"", b"connection: close\r\n"]


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("more", LAST, ids=["further", "last"])
def test_a_client_that_reads_when_it_has_sent_all_hears_why_it_is_refused(
    more: bytes, chunked: bool
) -> None:
    async def story() -> None:
        async with line(max_body_bytes=1000) as (_, opened):
            head, body = ask(b" " * 3_000_000, more, chunked=chunked)
            await opened.send(head + body[:2000])
            for at in range(2000, len(body), 100_000):
                await opened.send(body[at : at + 100_000])
            assert await opened.wire.status() == 413
            assert b"request_too_large" in await opened.wire.reader.readuntil(b"}}")
            opened.wire.send(ALIVE)
            if more:
                assert await opened.wire.reader.read() == b""
            else:
                assert await opened.wire.status() == 200

    asyncio.run(story())


async def poured(wire: Wire, at_most: int) -> int:
    """Send until the connection is closed; how much has gone, or more or less been read."""
    for sent in range(0, at_most, 1_000_000):
        wire.send(b" " * 1_000_000)
        try:
            await wire.drain()
        except ConnectionError:
            return sent
    return at_most


def test_the_body_of_a_refused_request_is_not_read_without_end() -> None:
    """Budget: 2 s."""

    async def story() -> None:
        async with line() as (_, opened):
            opened.wire.send(
                ASK + b"content-type: application/json\r\ncontent-length: 9999999999\r\n\r\n"
            )
            assert await opened.wire.status() == 413
            assert (
                DROPPED_BYTES / 2 < await poured(opened.wire, DROPPED_BYTES * 8) < DROPPED_BYTES * 2
            )

    asyncio.run(story())


@pytest.mark.parametrize("more", LAST, ids=["further", "last"])
def test_the_body_of_a_refused_request_is_not_waited_for_without_end(more: bytes) -> None:
    async def story() -> None:
        async with line(max_body_bytes=1000) as (_, opened):
            head, body = ask(b" " * 9_000_000, more, chunked=False)
            await opened.send(head)
            assert await opened.wire.status() == 413
            await opened.wire.reader.readuntil(b"}}")
            for at in range(3):
                await opened.send(body[at * 100_000 : (at + 1) * 100_000])
                await opened.open_after(WITHIN_S / 4)
            opened.clock.pass_(WITHIN_S / 4)
            assert await opened.wire.reader.read() == b""

    asyncio.run(story())


def test_a_request_gets_one_reply_although_its_body_turns_out_to_be_none() -> None:
    async def story() -> None:
        async with line(max_body_bytes=10) as (_, opened):
            await opened.send(
                ASK + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            await opened.send(b"f\r\n0123456789abcde\r\n")
            assert await opened.wire.status() == 413
            opened.wire.send(b"no length\r\n")
            assert b"HTTP/1.1" not in await opened.wire.reader.read()

    asyncio.run(story())


@pytest.mark.parametrize("trailers", [b"x-api-key: 1\r\nhost: evil\r\n", b"authorization:\r\n"])
def test_what_stands_behind_a_body_is_no_header_of_any_request(trailers: bytes) -> None:
    async def story() -> None:
        async def names(request: Request) -> Response:
            await request.body()
            return JSONResponse([name.decode() for name, _ in request.scope["headers"]])

        async with line_to(own(names)) as opened:
            head = OWN + b"transfer-encoding: chunked\r\n\r\n1\r\n \r\n"
            for end in (trailers, b""):
                await opened.send(head)
                await opened.send(b"0\r\n" + end + b"\r\n")
                assert await opened.wire.status() == 200
                said = orjson.loads(await opened.wire.reader.readuntil(b"]"))
                assert said == ["host", "transfer-encoding"]

    asyncio.run(story())


def test_a_closing_connection_does_not_wait_for_a_client_that_takes_nothing() -> None:
    async def story() -> None:
        async with line(wide(200), max_backlog_bytes=10**9) as (engine, opened):
            opened.wire.ask(stream=True)
            await until(lambda: bool(engine.requests))
            await engine.clock.step(100)
            await opened.send(b"\0 no HTTP\r\n\r\n")
            opened.clock.pass_(WITHIN_S)
            await news_has_come(opened.address)
            assert busy(engine)
            opened.clock.pass_(WITHIN_S)
            await until(lambda: not busy(engine))

    asyncio.run(story())


PORTION = 8_000_000
"""More than sockets hold."""


async def large(request: Request) -> Response:
    return Response(b" " * PORTION * 3)


def test_a_silent_client_that_has_not_taken_its_reply_is_let_go_too() -> None:
    async def story() -> None:
        async with line_to(own(large)) as opened:
            await opened.send(OWN + b"content-length: 0\r\n\r\n")
            for _ in range(4):
                opened.clock.pass_(WITHIN_S)
                await news_has_come(opened.address)
            await opened.left_nothing()
            with pytest.raises(asyncio.IncompleteReadError):
                await opened.wire.reader.readexactly(3 * PORTION)

    asyncio.run(story())


def test_a_last_reply_is_waited_for_while_the_client_takes_of_it() -> None:
    async def story() -> None:
        async with line_to(own(large)) as opened:
            opened.wire.receive_slowly(65_536)
            await opened.send(OWN + b"connection: close\r\ncontent-length: 0\r\n\r\n")
            assert b"\r\nconnection: close\r\n" in await opened.wire.reader.readuntil(b"\r\n\r\n")
            for _ in range(3):
                opened.clock.pass_(WITHIN_S)
                await news_has_come(opened.address)
                assert len(await opened.wire.reader.readexactly(PORTION)) == PORTION
            assert await opened.wire.reader.read() == b""

    asyncio.run(story())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_server_that_is_served_goes_by_its_setting(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """By the loop's own clock: a request that it was too busy to hear of in time is sent again."""

    async def said_to(address: Address, sent: bytes) -> bytes:
        async with Wire.to(address) as wire:
            wire.send(sent)
            return await wire.reader.read()

    async def story() -> None:
        settings = Settings(**SETTINGS, port=0, read_timeout_s=0.05)
        app = create_app(settings, engine=ScriptedEngine([script(ANSWER)]))
        async with asyncio.timeout(PATIENCE_S), our_server(app, settings) as server:
            address = Address(*server.servers[0].sockets[0].getsockname()[:2])
            assert await said_to(address, b"") == b""
            while not (reply := await said_to(address, HEAD)):
                pass
            assert reply.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            await until(lambda: not server.server_state.connections)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(story())
