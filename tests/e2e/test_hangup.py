"""Clients that hang up, over real sockets: the engine stops, and its place is free.

About 15 s in all on one core, most of it the embedded engine's start.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support import lawful
from tests.support.asgi import PATIENCE_S, events_of, until
from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
from tests.support.served import ANSWER, script
from tests.support.stores import memory
from trt_responses.engines.llamacpp.engine import LlamaCppEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

from tests.support.raw_http import Wire, news_has_come
from tests.support.served import ENDLESS, STALLED, wide
from tests.support.serving import listening

LEAVINGS: list[Callable[[Wire], None]] = [Wire.close, Wire.reset]


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
            await news_has_come(address)
            await engine.clock.step()
            request = engine.requests[-1]
            assert (request.state, request.steps_made) == ("aborted", 5)
            assert len(store) == 0

    asyncio.run(story())


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
            assert engine.requests[-1].steps_made == 100
            slow.reset()
            await news_has_come(address)
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
                await news_has_come(address)
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
                    await until(lambda: bool(engine.health().cache_use))
                    next_one.ask(max_output_tokens=4, seed=3)
                    leaver.reset()
                    async with asyncio.timeout(PATIENCE_S / 2):
                        assert await next_one.status() == 200

    asyncio.run(story())
