"""Clients that hang up, over real sockets: the engine stops, and its place is free.

About 15 s in all on one core, most of it the embedded engine's start.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support import lawful
from tests.support.asgi import PATIENCE_S, asked, events_of, until
from tests.support.served import ANSWER, SETTINGS, ids, script
from tests.support.serving import serving
from tests.support.stores import memory
from trt_responses.app import create_app
from trt_responses.engine.llamacpp.engine import LlamaCppEngine
from trt_responses.engine.scripted.engine import Script, ScriptedEngine, Stall, StepClock
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.support.serving import Address
    from trt_responses.engine.base import Engine
    from trt_responses.store.base import Store

ENDLESS = Script(tuple((i,) for i in ids("<|channel|>final<|message|>") + ids(" word") * 5000))
STALLED = script("<|channel|>final<|message|>Hold on", Stall())


class Wire:
    """One connection, as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def to(cls, address: Address) -> AsyncIterator[Wire]:
        wire = cls(*await asyncio.open_connection(address.host, address.port))
        try:
            yield wire
        finally:
            wire._writer.close()

    def ask(self, *, head: str = "", **fields: Any) -> None:
        body = orjson.dumps(asked(**fields))
        self.send(
            f"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\n{head}"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def status(self) -> int:
        """The status of the next reply; its headers are read too."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        return int(head.split()[1])

    async def chunks(self) -> bytes:
        """The body of a chunked reply."""
        return await self.rest(await self.reader.readline())

    async def rest(self, line: bytes) -> bytes:
        """The same, when its first line has been read."""
        body = b""
        while size := int(line, 16):
            body += await self.reader.readexactly(size)
            await self.reader.readline()
            line = await self.reader.readline()
        await self.reader.readline()
        return body

    def close(self) -> None:
        """Politely: what a client does that has lost interest."""
        self._writer.close()

    def reset(self) -> None:
        """Rudely: what a client does that was killed."""
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


LEAVINGS: list[Callable[[Wire], None]] = [Wire.close, Wire.reset]


@asynccontextmanager
async def listening(
    engine: Engine, store: Store | None = None, **settings: Any
) -> AsyncIterator[Address]:
    app = create_app(Settings(**(SETTINGS | settings)), engine=engine, store=store)
    async with serving(app) as address:
        yield address


@pytest.mark.parametrize("leave", LEAVINGS, ids=["close", "reset"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("written", [ENDLESS, STALLED], ids=["writing", "stalled"])
def test_a_client_that_hangs_up_stops_the_engine_within_one_further_step(
    leave: Callable[[Wire], None], stream: bool, written: Script
) -> None:
    async def story() -> None:
        engine = ScriptedEngine([written], clock=StepClock.manual(settle_turns=40))
        store = memory()
        async with listening(engine, store) as address, Wire.to(address) as wire:
            wire.ask(stream=stream)
            await until(lambda: bool(engine.requests))
            await engine.clock.step(5)
            if stream:
                assert await wire.status() == 200
            leave(wire)
            await _news_has_come(address)
            await engine.clock.step()
            request = engine.requests[-1]
            assert (request.state, request.steps_taken) == ("aborted", 5)
            assert len(store) == 0

    asyncio.run(story())


async def _news_has_come(address: Address) -> None:
    """A later connection has been answered, so what the earlier one sent has been seen."""
    async with Wire.to(address) as other:
        other.send(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await other.status() == 200


def test_a_slow_reader_holds_up_nobody_and_gets_every_frame() -> None:
    """Past what sockets and buffers take, the server waits with this stream, and with no other."""

    async def story() -> None:
        engine = ScriptedEngine([wide(200), script(ANSWER)])
        async with (
            listening(engine, max_backlog_bytes=10**9) as address,
            Wire.to(address) as slow,
            Wire.to(address) as quick,
        ):
            slow.ask(stream=True)
            await until(lambda: bool(engine.requests))
            quick.ask()
            assert await quick.status() == 200
            await until(lambda: engine.requests[0].state == "finished")
            assert await slow.status() == 200
            events = events_of(await slow.chunks())
            lawful.check(events, events[-1]["response"])
            assert len(events[-1]["response"]["output"][0]["content"][0]["text"]) == 600_000

    asyncio.run(story())


def test_a_reader_that_is_far_too_slow_is_dropped_and_the_engine_stops() -> None:
    async def story() -> None:
        engine = ScriptedEngine([wide(200), script(ANSWER)])
        async with (
            listening(engine, max_backlog_bytes=10**6) as address,
            Wire.to(address) as slow,
            Wire.to(address) as quick,
        ):
            slow.ask(stream=True)
            await until(lambda: bool(engine.requests) and engine.requests[0].state == "aborted")
            quick.ask()
            assert await quick.status() == 200

    asyncio.run(story())


def wide(count: int) -> Script:
    """Steps of many ids, so that a stream is larger than any socket's buffer."""
    return Script((ids("<|channel|>final<|message|>"), *[ids(" word") * 600] * count))


def test_a_slow_reader_that_hangs_up_stops_the_engine() -> None:
    async def story() -> None:
        engine = ScriptedEngine([wide(200)], clock=StepClock.manual(settle_turns=4))
        async with (
            listening(engine, max_backlog_bytes=10**9) as address,
            Wire.to(address) as slow,
        ):
            slow.ask(stream=True)
            await until(lambda: bool(engine.requests))
            await engine.clock.step(100)
            assert engine.requests[-1].steps_taken == 100
            slow.reset()
            await _news_has_come(address)
            await engine.clock.step()
            assert engine.requests[-1].state == "aborted"

    asyncio.run(story())


def test_requests_on_one_connection_are_answered_in_turn() -> None:
    async def story() -> None:
        async with (
            listening(ScriptedEngine([script(ANSWER)])) as address,
            Wire.to(address) as wire,
        ):
            wire.ask(stream=True)
            wire.ask(stream=True)  # before the first is answered
            for _ in range(2):
                assert await wire.status() == 200
                assert (await wire.chunks()).endswith(b"data: [DONE]\n\n")

    asyncio.run(story())


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"\x00" * 100,
            b"GET\r\n\r\n",
            b"\x16\x03\x01\x02\x00",
            b"POST /v1/responses HTTP/1.1\r\n",
        ),
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_hurts_nobody_else(data: bytes) -> None:
    async def story() -> None:
        engine = ScriptedEngine([script(ANSWER)])
        async with listening(engine) as address:
            async with Wire.to(address) as wire:
                wire.send(data)
                await _news_has_come(address)
            async with Wire.to(address) as wire:
                wire.ask(stream=True)
                assert await wire.status() == 200

    asyncio.run(story())


@pytest.mark.xdist_group("embedded")
def test_on_the_embedded_engine_the_slot_is_free_when_its_client_has_left(
    random_gguf: Path,
) -> None:
    """Budget: 15 s. One slot, held by an answer of 100,000 tokens: the next request is served only
    if that one ends with its client."""

    async def story() -> None:
        engine = LlamaCppEngine(random_gguf, context_tokens=120_000, slots=1, threads=1)
        async with listening(engine) as address:
            for stream in (True, False):
                async with Wire.to(address) as leaver, Wire.to(address) as next_one:
                    leaver.ask(stream=stream, seed=3)
                    await until(lambda: bool(engine._running))
                    next_one.ask(max_output_tokens=4, seed=3)
                    leaver.reset()
                    async with asyncio.timeout(PATIENCE_S / 2):
                        assert await next_one.status() == 200

    asyncio.run(story())
