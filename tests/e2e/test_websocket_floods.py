"""Clients that flood a WebSocket with raw frames, from a process of their own: how long each holds
the server's event loop, in CPU time, and that nothing of it stands in the log as a fault."""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import PATIENCE_S, until
from tests.support.floods import CLOSE, FLOODS, TEXT, UPGRADE, frame, text
from tests.support.hold import slowness, watched
from tests.support.scripted.engine import ScriptedEngine, StepClock
from tests.support.served import SETTINGS, script, wide
from tests.support.serving import our_server
from trt_responses.app import create_app
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from trt_responses.serve.server import Server

AT_MOST_S = 0.1
"""`make gaps` has half of it, on a quiet machine."""
SHORT = ("empty continuations", "pings", "no JSON")
"""Those that held the server longest."""


def port_of(server: Server) -> int:
    return int(server.servers[0].sockets[0].getsockname()[1])


SHORT_S, FLOOD_S = 0.5, 1.0
"""Of the server's CPU time, so that a flood is as long on a busy machine."""
LATE = {"20,000 requests": 2.0}
"""Where the longest hold comes after a beginning of many requests."""


async def holds(name: str, *crowds: int, seconds: float) -> list[float]:
    """The longest hold by each number of clients, one number after the other."""
    # what a killed client has sent is not waited for
    settings = Settings(**SETTINGS, port=0, log_level="error", drain_s=0)
    engine = ScriptedEngine(lambda *_: script("<|channel|>final<|message|>Hi.<|return|>"))
    async with our_server(create_app(settings, engine=engine), settings) as server:
        return [await longest_hold_s(server, name, clients, seconds) for clients in crowds]


async def longest_hold_s(server: Server, name: str, clients: int, seconds: float) -> float:
    flood = (sys.executable, "-m", "tests.support.floods", str(port_of(server)), name)
    async with watched() as hold:
        started = [
            await asyncio.create_subprocess_exec(*flood, str(PATIENCE_S), stdout=PIPE)
            for _ in range(clients)
        ]
        try:
            for each in started:
                assert each.stdout is not None
                assert await each.stdout.readline() == b"flooding\n"
            end_s = hold.spent_s + LATE.get(name, seconds)
            await until(lambda: hold.spent_s >= end_s)
        finally:
            for each in started:
                each.kill()
                await each.communicate()
    return hold.longest_s


@pytest.mark.parametrize("name", SHORT)
def test_a_flood_does_not_hold_the_loop(name: str) -> None:
    assert max(asyncio.run(holds(name, 1, seconds=SHORT_S))) < AT_MOST_S * slowness()


@pytest.mark.slow  # a second and more for each flood
@pytest.mark.parametrize("name", FLOODS)
def test_no_flood_holds_the_loop_for_long(name: str) -> None:
    assert max(asyncio.run(holds(name, 1, 8, seconds=FLOOD_S))) < AT_MOST_S * slowness()


def faults(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.exc_info or each.levelno >= logging.ERROR]


@pytest.mark.parametrize("running", [False, True], ids=["idle", "while a response is made"])
@pytest.mark.parametrize(
    "last",
    [
        b"",
        frame(TEXT, announced=1000),
        frame(TEXT, b"\xff"),
        frame(CLOSE, (999).to_bytes(2, "big")),
        frame(CLOSE, (1000).to_bytes(2, "big") + b"\xff"),
        b"\x81\x02{}",
        frame(3),
    ],
    ids=["", "half a frame", "no UTF-8", "code", "reason", "not masked", "opcode"],
)
def test_however_a_client_breaks_off_the_log_has_no_fault(
    caplog: pytest.LogCaptureFixture, last: bytes, running: bool
) -> None:
    async def story() -> None:
        settings = Settings(**SETTINGS, port=0)
        engine = ScriptedEngine(lambda *_: wide(20_000), clock=StepClock.free())
        async with our_server(create_app(settings, engine=engine), settings) as server:
            for reset in (False, True):
                reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
                writer.write(UPGRADE)
                assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
                if running:
                    writer.write(text())
                    await reader.readexactly(100)
                writer.write(last)
                if reset:
                    writer.transport.abort()
                else:
                    writer.close()
            await until(lambda: all(each.state == "aborted" for each in engine.requests))
            await until(lambda: not server.server_state.connections)

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert not faults(caplog)


def test_an_upgrade_that_is_refused_is_no_fault_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        settings = Settings(**SETTINGS, port=0, api_keys="ann:secret")
        engine = ScriptedEngine(lambda *_: script("<|return|>"))
        async with our_server(create_app(settings, engine=engine), settings) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
            writer.write(UPGRADE)
            assert b" 401 " in await reader.readline()
            await reader.read()
            writer.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert not faults(caplog)
