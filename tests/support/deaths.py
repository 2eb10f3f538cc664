"""Ways in which an engine of TensorRT-LLM may die, and what its streams and a server see of each.

The adapter runs over the stand-in for the package, in an engine process of its own, with a rank's
process below it; each of the two is killed, frozen or fails. What is measured is for a person to
read (`scripts/engine_deaths.py`); a test asserts reasons and not times.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

from tests.support.echo_engines import process_of
from tests.support.gather import begin, generated
from tests.support.polling import polled, until_seen
from tests.support.processes import children_of, is_alive
from tests.support.server_processes import asked
from tests.support.serving import listening
from trt_responses import __version__
from trt_responses.engine import GenerateOptions
from trt_responses.engines.remote.client import RemoteEngine
from trt_responses.engines.remote.process import Patience
from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from trt_responses.engines.trtllm.liveness import Patience as Liveness

PROMPT = (1, 2, 3)
STREAMS = 64
ENDLESS = GenerateOptions(90_000, ())


@dataclass(frozen=True)
class Death:
    """`error` is the class of the error that reports a rank's death; None if nothing reports it."""

    name: str
    whose: Literal["rank", "process"]
    number: signal.Signals
    error: str | None = None
    told_s: float = 60.0
    """The most seconds until all streams have ended."""


DEATHS = (
    *(
        Death(f"a rank fails: {name}", "rank", signal.SIGKILL, name, 10.0)
        for name in ("RuntimeError", "KeyError", "IndexError", "OSError", "AssertionError")
    ),
    Death("a rank is killed, no error comes, calls block", "rank", signal.SIGKILL),
    Death("a rank is frozen", "rank", signal.SIGSTOP),
    Death("the engine's process is killed", "process", signal.SIGKILL, told_s=10.0),
    Death("the engine's process crashes", "process", signal.SIGSEGV, told_s=10.0),
    Death("the engine's process is frozen", "process", signal.SIGSTOP),
)


@dataclass
class Seen:
    """Of one death: seconds until all streams had ended and until the next engine answered; how
    long the slowest `/health/live` took meanwhile; the errors of the streams."""

    told_s: float = 0.0
    ready_s: float = 0.0
    live_s: float = 0.0
    live_statuses: set[int] = field(default_factory=set)
    reasons: set[str] = field(default_factory=set)
    lost_streams: int = 0
    rank_is_left: bool = False
    """The rank still runs when the next engine is ready."""


async def seen(
    death: Death, patience: Patience | None = None, liveness: Liveness | None = None
) -> Seen:
    """What 64 streams, and a server over the same engine, see of a death."""
    process = process_of("worker", patience, how_of(death.error, liveness))
    engine = RemoteEngine(__version__, process=process)
    found = Seen()
    async with listening(engine) as address:
        await _ready(engine)
        sinks = [begin(engine, PROMPT, ENDLESS)[0] for _ in range(STREAMS)]
        await asyncio.gather(*(sink.some(2) for sink in sinks))
        asking = asyncio.create_task(ask_live(address.port, found))
        assert process.pid is not None
        rank = rank_of(process.pid)
        os.kill(rank if death.whose == "rank" else process.pid, death.number)
        begun_s = time.monotonic()
        await asyncio.gather(*(sink.done() for sink in sinks))
        found.told_s = time.monotonic() - begun_s
        await _ready(engine)
        await generated(engine, PROMPT, GenerateOptions(1, ()))
        found.ready_s = time.monotonic() - begun_s
        found.rank_is_left = is_alive(rank)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    found.reasons = {sink.end.error or "" for sink in sinks}
    found.lost_streams = sum(sink.end.finish == "error" for sink in sinks)
    return found


async def stopped(number: signal.Signals, deadline_s: float) -> tuple[float, set[str]]:
    """Seconds that an engine takes to stop whose rank was killed or frozen, and the errors of
    its streams."""
    process = process_of("worker", None, how_of(None))
    engine = RemoteEngine(__version__, process=process)
    await engine.start()
    sinks = [begin(engine, PROMPT, ENDLESS)[0] for _ in range(STREAMS)]
    await asyncio.gather(*(sink.some(2) for sink in sinks))
    assert process.pid is not None
    os.kill(rank_of(process.pid), number)
    begun_s = time.monotonic()
    await engine.stop(deadline_s)
    return time.monotonic() - begun_s, {sink.end.error or "" for sink in sinks}


async def failed_start(error: str | None, start_s: float) -> tuple[float, str]:
    """Seconds until the start of an engine has failed whose rank dies while it loads, and why."""
    process = process_of("worker", Patience(start_s=start_s), how_of(error, dies="loading"))
    begun_s = time.monotonic()
    try:
        await RemoteEngine(__version__, process=process).start()
    except StartupError as fault:
        return time.monotonic() - begun_s, str(fault)
    raise AssertionError("it has started")


async def _ready(engine: RemoteEngine) -> None:
    await until_seen(lambda: engine.health().ready)


async def ask_live(port: int, found: Seen) -> None:
    """Ask `/health/live` now and then, and keep what the slowest answer took."""

    async def look() -> None:
        begun_s = time.monotonic()
        status, _ = await asyncio.to_thread(asked, port, "GET", "/health/live")
        found.live_s = max(found.live_s, time.monotonic() - begun_s)
        found.live_statuses.add(status)

    await polled(look)


def how_of(error: str | None, liveness: Liveness | None = None, *, dies: str = "") -> str:
    given: dict[str, object] = {"error": error, "dies": dies}
    if liveness is not None:
        given["patience"] = asdict(liveness)
    return json.dumps(given)


def rank_of(pid: int) -> int:
    """The one process below an engine's."""
    (found,) = children_of(pid)
    return found
