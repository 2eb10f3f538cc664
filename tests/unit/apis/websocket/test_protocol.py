"""A WebSocket connection of uvicorn's as ours: what it parses at once, what it waits for, and the
codes it closes with. A transport that notes what is done to it stands for the client."""

from __future__ import annotations

import asyncio
import logging
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.support.asgi import until
from tests.support.floods import CLOSE, CONT, PING, TEXT, UPGRADE, frame
from trt_responses.apis.websocket.protocol import (
    FRAGMENTS,
    FRAMES_AT_ONCE,
    PAUSE_S,
    SocketProtocol,
    socket_protocol,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import Message, Receive, Scope, Send

PONG_HEAD = b"\x8a\x00"
START = frame(TEXT, fin=False)
EMPTY = frame(CONT, fin=False)


class Transport(asyncio.Transport):
    """Takes everything, and reads when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.reading = True
        self.closing = False

    def write(self, data: Any) -> None:
        self.written += data

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close

    @property
    def code(self) -> int:
        """The code in the close frame that was written last."""
        at = self.written.rindex(bytes([128 | CLOSE])) + 2
        return int(struct.unpack("!H", self.written[at : at + 2])[0])


class App:
    """Accepts, takes a message when it may, and notes it."""

    def __init__(self) -> None:
        self.may_accept, self.may_take = asyncio.Event(), asyncio.Event()
        self.got: list[Message] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await self.may_accept.wait()
        await send({"type": "websocket.accept"})
        while not self.got or self.got[-1]["type"] == "websocket.receive":
            await self.may_take.wait()
            self.got.append(await receive())


class Line:
    """A connection, its transport and its app."""

    def __init__(self, kind: type[SocketProtocol]) -> None:
        self.app, self.transport = App(), Transport()
        config = uvicorn.Config(
            self.app,
            ws=kind,
            ws_max_size=1 << 22,
            ws_per_message_deflate=False,
            log_config=None,
            lifespan="off",
        )
        config.load()
        self.protocol = kind(config, ServerState(), {})
        self.protocol.connection_made(self.transport)
        self.protocol.data_received(UPGRADE)

    def comes(self, data: bytes) -> None:
        """A read of the loop's, however much it brings."""
        assert self.transport.reading
        self.protocol.data_received(data)

    async def accepted(self) -> None:
        self.app.may_accept.set()
        await until(lambda: b" 101 " in self.transport.written)


@asynccontextmanager
async def open_line(
    kind: type[SocketProtocol] | None = None, *, takes: bool = True, read_timeout_s: float = 60.0
) -> AsyncIterator[Line]:
    line = Line(kind or socket_protocol(read_timeout_s=read_timeout_s))
    await line.accepted()
    if takes:
        line.app.may_take.set()
    try:
        yield line
    finally:
        line.app.may_take.set()
        line.protocol.connection_lost(None)


@pytest.mark.parametrize(
    ("sent", "parsed"),
    [
        (START + EMPTY * 20_000, lambda line: len(line.protocol.frames)),
        (frame(PING) * 20_000, lambda line: line.transport.written.count(PONG_HEAD)),
        (frame(TEXT) * 20_000, lambda line: line.protocol.queue.qsize()),
    ],
    ids=["continuations", "pings", "messages"],
)
def test_a_turn_parses_a_few_frames_of_what_came_and_nothing_is_read_meanwhile(
    sent: bytes, parsed: Callable[[Line], int]
) -> None:
    async def story() -> None:
        async with open_line(takes=False) as line:
            line.comes(sent)
            assert parsed(line) <= FRAMES_AT_ONCE
            assert not line.transport.reading

    asyncio.run(story())


def test_all_that_came_is_parsed_in_the_end_and_reading_goes_on() -> None:
    async def story() -> None:
        async with open_line() as line:
            line.comes(frame(PING) * 200)
            line_of_text = [frame(TEXT, b"%d" % n) for n in range(100)]
            await until(lambda: line.transport.reading)
            line.comes(b"".join(line_of_text))
            await until(lambda: line.transport.reading)
            await until(lambda: len(line.app.got) == 100)
            assert line.transport.written.count(PONG_HEAD) == 200
            assert [each["text"] for each in line.app.got] == [str(n) for n in range(100)]

    asyncio.run(story())


@pytest.mark.parametrize(
    "piece",
    [1, 7, pytest.param(1000, marks=pytest.mark.slow), 300_000],  # 2 s: a thousand pieces
)
def test_a_message_is_whole_however_it_comes(piece: int) -> None:
    async def story() -> None:
        async with open_line() as line:
            size = 300 if piece < 1000 else 1_000_000
            words = ("wörter " * size).encode()[:size]
            words = words.decode(errors="ignore").encode()
            sent = frame(TEXT, words[:200], fin=False) + frame(PING) + frame(CONT, words[200:])
            for start in range(0, len(sent), piece):
                await until(lambda: line.transport.reading)
                line.comes(sent[start : start + piece])
            await until(lambda: bool(line.app.got))
            assert line.app.got[0]["text"].encode() == words
            assert PONG_HEAD in line.transport.written

    asyncio.run(story())


def test_all_connections_of_a_server_share_one_turn_and_each_gets_its_own() -> None:
    async def story() -> None:
        kind = socket_protocol(read_timeout_s=60.0)
        loop = asyncio.get_running_loop()
        async with open_line(kind) as one, open_line(kind) as two:
            begun_s = loop.time()
            for line in (one, two):
                line.comes(START + EMPTY * 10_000)  # each waits for its first turn, too
            await until(lambda: len(two.protocol.frames) > 2 * FRAMES_AT_ONCE)
            turns = (loop.time() - begun_s) / PAUSE_S
            parsed = [len(line.protocol.frames) for line in (one, two)]
            assert sum(parsed) <= (turns + 2) * FRAMES_AT_ONCE
            assert abs(parsed[0] - parsed[1]) <= FRAMES_AT_ONCE

    asyncio.run(story())


def test_a_message_of_too_many_frames_ends_the_connection() -> None:
    async def story() -> None:
        async with open_line() as line:
            line.comes(START + EMPTY * FRAGMENTS)
            await until(lambda: line.transport.closing)
            assert line.transport.code == 1008
            await until(lambda: bool(line.app.got))
            assert line.app.got[-1]["type"] == "websocket.disconnect"

    asyncio.run(story())


def test_text_that_is_no_utf_8_ends_the_connection_and_writes_nothing_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        async with open_line() as line:
            line.comes(frame(TEXT, b"\xff"))
            assert line.transport.closing
            assert line.transport.code == 1007
            await until(lambda: bool(line.app.got))
            assert line.app.got == [
                {
                    "type": "websocket.disconnect",
                    "code": 1007,
                    "reason": "the text is no UTF-8",
                }
            ]

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert not caplog.records


def test_frames_wait_until_the_connection_is_accepted() -> None:
    async def story() -> None:
        line = Line(socket_protocol(read_timeout_s=60.0))
        line.comes(frame(PING) + frame(TEXT, b"{}"))
        line.app.may_take.set()
        assert not line.transport.written
        await line.accepted()
        await until(lambda: bool(line.app.got))
        assert line.app.got[0]["text"] == "{}"
        assert line.transport.written.endswith(PONG_HEAD)
        line.protocol.connection_lost(None)

    asyncio.run(story())


def test_pongs_do_not_pile_up_for_a_client_that_takes_none() -> None:
    async def story() -> None:
        async with open_line() as line:
            line.protocol.pause_writing()
            before = line.transport.written
            line.comes(frame(PING, b"x" * 125) * 10)
            assert line.transport.written == before
            line.protocol.resume_writing()
            line.comes(frame(PING))
            assert line.transport.written == before + PONG_HEAD

    asyncio.run(story())


@pytest.mark.parametrize(
    "begun", [frame(TEXT, announced=1 << 20), START, frame(PING)[:3]], ids=["frame", "text", "ping"]
)
def test_a_message_that_does_not_come_on_ends_the_connection(begun: bytes) -> None:
    async def story() -> None:
        async with open_line(read_timeout_s=0.01) as line:
            line.comes(begun)
            await until(lambda: line.transport.closing)
            assert line.transport.code == 1008

    asyncio.run(story())


def test_a_client_that_sends_nothing_is_no_slow_one() -> None:
    async def story() -> None:
        loop, looks = asyncio.get_running_loop(), 5
        async with open_line(read_timeout_s=0.01) as line:
            line.comes(frame(TEXT, b"{}"))
            until_s = loop.time() + looks * 0.01
            await until(lambda: loop.time() > until_s)
            assert not line.transport.closing

    asyncio.run(story())
