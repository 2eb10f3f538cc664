"""An engine's process is killed, frozen, or fails in its start: what the front end sees of it.

Budget: 25 s on one core, most of it processes that begin.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.echo_engines import process_of, remote
from tests.support.gather import Gather, begin, generated
from tests.support.polling import until_seen
from tests.support.server_processes import asked
from tests.support.serving import listening
from tests.support.turns import turn
from trt_responses import __version__
from trt_responses.engine import GenerateOptions
from trt_responses.engines.remote.client import RemoteEngine
from trt_responses.engines.remote.process import EngineProcess, Patience
from trt_responses.errors import EngineUnavailable, StartupError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROMPT = [1, 2, 3]
STREAMS = 64
HASTY = Patience(silence_s=4.0, first_backoff_s=0.01)
PATIENT = Patience(silence_s=60.0, first_backoff_s=0.01)
ENDLESS = GenerateOptions(10_000, ())
TALKATIVE = """import sys
sys.stdout.write('{"ready": true}\\n' + 1_000 * "{}\\n")
sys.stdout.flush()
sys.stdin.readlines()
"""
SAYS = """import sys
sys.stdout.write('{{"ready": true}}\\n')
{}
sys.stdout.flush()
"""
"""A program that is ready, does one thing more, and ends."""


@contextlib.asynccontextmanager
async def running(patience: Patience) -> AsyncIterator[tuple[RemoteEngine, EngineProcess]]:
    process = process_of("slow", patience)
    engine = RemoteEngine(__version__, process=process)
    await engine.start()
    try:
        yield engine, process
    finally:
        await engine.stop(5)


async def ready(engine: RemoteEngine) -> None:
    await until_seen(lambda: engine.health().ready)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGKILL, "signal SIGKILL"),
        (signal.SIGSTOP, "no heartbeat for 4 s"),
        (signal.SIGSEGV, "signal SIGSEGV"),
    ],
    ids=["killed", "frozen", "crashed"],
)
def test_a_death_ends_all_streams_with_its_reason_and_the_engine_comes_back(
    number: signal.Signals, reason: str
) -> None:
    async def run() -> None:
        patience = HASTY if number == signal.SIGSTOP else PATIENT
        async with running(patience) as (engine, process):
            told = [begin(engine, PROMPT, ENDLESS)[0] for _ in range(STREAMS)]
            await asyncio.gather(*(sink.some(1) for sink in told[:2]))
            assert process.pid is not None
            os.kill(process.pid, number)
            await asyncio.gather(*(sink.done() for sink in told))
            assert {sink.end.error for sink in told} == {f"The engine's process ended: {reason}."}
            health = engine.health()
            assert (health.alive, health.ready) == (True, False)
            with pytest.raises(EngineUnavailable, match=reason):
                begin(engine, PROMPT, ENDLESS)
            await ready(engine)
            assert (await generated(engine, PROMPT, GenerateOptions(1, ()))).end.finish == "length"

    asyncio.run(run())


def test_a_server_answers_while_its_engine_is_frozen() -> None:
    async def run() -> None:
        process = process_of("slow", Patience(silence_s=4.0, first_backoff_s=1.0))
        engine = RemoteEngine(__version__, process=process)
        async with listening(engine) as address:

            async def get(path: str) -> tuple[int, bytes]:
                return await asyncio.to_thread(asked, address.port, "GET", path)

            assert process.pid is not None
            os.kill(process.pid, signal.SIGSTOP)
            for _ in range(3):
                assert (await get("/health/live"))[0] == 200
            await until_seen(lambda: "no heartbeat" in (engine.health().reason or ""))
            assert (await get("/health/live"))[0] == 200
            status, body = await get("/health/ready")
            assert status == 503
            assert b"no heartbeat" in body
            await ready(engine)

    asyncio.run(run())


def test_a_process_that_gives_many_signs_of_life_at_once_can_be_stopped() -> None:
    async def run() -> None:
        process = EngineProcess((sys.executable, "-ISc", TALKATIVE), {})
        await process.start()
        await turn(3)  # from here on it is watched, and each turn of the loop reads a sign
        async with asyncio.timeout(60):
            await process.stop(5)
        assert process.pid is None

    asyncio.run(run())


@pytest.mark.parametrize("name", ["RuntimeError", "KeyError", "SystemExit", "KeyboardInterrupt"])
def test_a_start_that_raises_says_its_root_cause(name: str) -> None:
    async def run() -> None:
        engine = remote("raises", how=name)
        with pytest.raises(StartupError) as stopped:
            await engine.start()
        assert "no CUDA device found" in str(stopped.value)
        assert "\n" not in str(stopped.value)

    asyncio.run(run())


def test_a_process_that_ends_while_it_loads_stops_the_start() -> None:
    async def run() -> None:
        with pytest.raises(StartupError, match=r"ended while loading \(exit status 7\)"):
            await remote("exits", how="7").start()

    asyncio.run(run())


def test_a_load_that_takes_too_long_stops_the_start() -> None:
    async def run() -> None:
        process = process_of("loads for ever", Patience(start_s=1.0))
        with pytest.raises(StartupError, match="did not load within 1 s"):
            await RemoteEngine(__version__, process=process).start()
        assert process.pid is None

    asyncio.run(run())


def test_a_start_that_is_called_off_leaves_no_process() -> None:
    async def run() -> None:
        process = process_of("loads for ever")
        starting = asyncio.create_task(RemoteEngine(__version__, process=process).start())
        await until_seen(lambda: process.pid is not None)
        pid = process.pid
        assert pid is not None
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert gone(pid)

    asyncio.run(run())


def test_after_too_many_deaths_in_a_row_the_engine_is_lost() -> None:
    async def run() -> None:
        patience = Patience(restarts=1, first_backoff_s=0.01)
        async with running(patience) as (engine, process):
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            await until_seen(lambda: not engine.health().ready)
            assert engine.health().alive
            await ready(engine)
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            await until_seen(lambda: not engine.health().alive)
            assert "SIGKILL" in (engine.health().reason or "")

    asyncio.run(run())


@pytest.mark.parametrize(
    "line", ["no JSON\\n", "[]" * 40_000 + "\\n", '{"los'], ids=["no JSON", "too long", "cut"]
)
def test_a_process_that_says_what_cannot_be_read_is_replaced(line: str) -> None:
    async def run() -> None:
        program = SAYS.format(f"sys.stdout.write({line!r}.encode().decode('unicode_escape'))")
        patience = Patience(restarts=1, first_backoff_s=0.01, silence_s=600)
        process = EngineProcess((sys.executable, "-ISc", program), {}, patience)
        await process.start()
        try:
            async with asyncio.timeout(60):
                why = await process.lost()
            assert "wrote an invalid line" in why or "exit status 0" in why
            assert process.pid is None
        finally:
            await process.stop(0)

    asyncio.run(run())


def test_deaths_while_it_loads_are_not_forgiven_however_long_it_loads(tmp_path: Path) -> None:
    """It loads once, and never again."""

    async def run() -> None:
        program = f"import os; os.mkdir({str(tmp_path / 'once')!r})\n" + SAYS.format("pass")
        patience = Patience(restarts=2, first_backoff_s=0.01, steady_s=0.0)
        process = EngineProcess((sys.executable, "-ISc", program), {}, patience)
        await process.start()
        try:
            async with asyncio.timeout(60):
                assert "while loading" in await process.lost()
        finally:
            await process.stop(0)

    asyncio.run(run())


def test_a_process_that_holds_its_loop_ends_when_it_is_told_to() -> None:
    async def run() -> None:
        async with running(Patience()) as (engine, process):
            pid = process.pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            begun_s = time.monotonic()
            await engine.stop(0.5)
            assert gone(pid)
            assert time.monotonic() - begun_s < 60

    asyncio.run(run())


def test_streams_of_an_engine_that_is_stopped_hear_why() -> None:
    async def run() -> None:
        async with running(Patience()) as (engine, process):
            told: Gather = begin(engine, PROMPT, ENDLESS)[0]
            await told.some(1)
            await engine.stop(5)
            assert told.end.error == "The engine has been stopped."
            assert process.pid is None

    asyncio.run(run())
