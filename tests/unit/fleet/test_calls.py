"""Calls between the fleet and a front end, over a real socket."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from trt_responses.errors import NotFound, StartupError
from trt_responses.features.rollout.measures import GateReport, LoadRefused
from trt_responses.fleet.calls import Calls, LostPeer
from trt_responses.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Answers = dict[str, Callable[..., Awaitable[Any]]]


@asynccontextmanager
async def joined(
    folder: Path, answers: Answers
) -> AsyncIterator[tuple[Calls, asyncio.StreamWriter]]:
    """One end of a connection, and the writer of the other, which has the answers."""
    ends: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls = Calls(reader, writer, answers)
        ends.put_nowait(writer)
        await calls.live()

    server = await asyncio.start_unix_server(serve, folder / "calls.sock")
    reader, writer = await asyncio.open_unix_connection(folder / "calls.sock")
    here = Calls(reader, writer, {})
    async with beside(here.live()):
        yield here, await ends.get()
    server.close()


async def refuse() -> None:
    raise LoadRefused("mine@2 is slow", GateReport(2, "slow", speed_ratio=0.5, repairs=(0, 1)))


async def miss() -> None:
    raise NotFound("No such engine.", code="engine_not_found")


async def stumble() -> None:
    raise ZeroDivisionError


def test_what_is_returned_or_raised_there_is_returned_or_raised_here(tmp_path: Path) -> None:
    async def add(one: int, other: int) -> int:
        return one + other

    async def story() -> None:
        answers: Answers = {"add": add, "refuse": refuse, "miss": miss, "stumble": stumble}
        async with joined(tmp_path, answers) as (here, _):
            one, other = await asyncio.gather(here.call("add", 1, 2), here.call("add", 3, 4))
            assert (one, other) == (3, 7)
            with pytest.raises(LoadRefused) as refused:
                await here.call("refuse")
            assert refused.value.message == "mine@2 is slow"
            assert refused.value.report is not None
            assert refused.value.report.to_dict()["speed_ratio"] == 0.5
            with pytest.raises(Exception, match="No such engine") as missing:
                await here.call("miss")
            fault: Any = missing.value
            assert (fault.status, fault.code) == (404, "engine_not_found")
            with pytest.raises(StartupError, match="ZeroDivisionError"):
                await here.call("stumble")

    asyncio.run(story())


def test_a_call_that_is_cancelled_here_is_cancelled_there(tmp_path: Path) -> None:
    async def story() -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with joined(tmp_path, {"wait": wait}) as (here, _):
            async with beside(here.call("wait")):
                await begun.wait()
            await cancelled.wait()

    asyncio.run(story())


def test_calls_end_with_the_connection_on_both_ends(tmp_path: Path) -> None:
    async def story() -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with joined(tmp_path, {"wait": wait}) as (here, there):
            waiting = asyncio.create_task(here.call("wait"))
            await begun.wait()
            there.close()
            with pytest.raises(LostPeer):
                await waiting
            await cancelled.wait()
            with pytest.raises(LostPeer):
                await here.call("wait")

    asyncio.run(story())
