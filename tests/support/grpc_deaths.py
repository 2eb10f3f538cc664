"""Ways in which an engine behind gRPC may go away, and what its streams and a server see of each.

The server there is a process of its own, with a rank's process below it. When all streams have
ended, the test ends what is left of it and starts it again on its port, as a supervisor does.
What is measured is for a person to read (`scripts/engine_deaths.py`); a test asserts reasons.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import AsyncExitStack, suppress

from tests.support.deaths import PROMPT, STREAMS, Death, Seen, ask_live, rank_of
from tests.support.gather import begin, generated
from tests.support.grpc_server import server_process
from tests.support.polling import until_seen
from tests.support.serving import listening
from trt_responses.engine import GenerateOptions
from trt_responses.engines.distant import Patience
from trt_responses.engines.grpc.engine import Address, GrpcEngine
from trt_responses.errors import StartupError

ENDLESS = GenerateOptions(90_000, ())


def engine_at(port: int, patience: Patience | None = None) -> GrpcEngine:
    return GrpcEngine(Address("127.0.0.1", port, "demo"), patience)


async def seen_over_grpc(death: Death, patience: Patience | None = None) -> Seen:
    """What 64 streams, and a server over the same engine, see of a death."""
    found = Seen()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(server_process(death.error))
        engine = engine_at(server.port, patience)
        address = await stack.enter_async_context(listening(engine))
        await until_seen(lambda: engine.health().ready)
        sinks = [begin(engine, PROMPT, ENDLESS)[0] for _ in range(STREAMS)]
        await asyncio.gather(*(sink.some(2) for sink in sinks))
        asking = asyncio.create_task(ask_live(address.port, found))
        rank = rank_of(server.pid)
        os.kill(rank if death.whose == "rank" else server.pid, death.number)
        begun_s = time.monotonic()
        await asyncio.gather(*(sink.done() for sink in sinks))
        found.told_s = time.monotonic() - begun_s
        await server.end()
        with suppress(ProcessLookupError):
            os.kill(rank, signal.SIGKILL)
        await stack.enter_async_context(server_process(port=server.port))
        again_s = time.monotonic()
        await until_seen(lambda: engine.health().ready)
        await generated(engine, PROMPT, GenerateOptions(1, ()))
        found.ready_s = time.monotonic() - again_s
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    found.reasons = {sink.end.error or "" for sink in sinks}
    found.lost_streams = sum(sink.chunks[-1].lost == "died" for sink in sinks)
    return found


async def failed_start_over_grpc(start_s: float) -> tuple[float, str]:
    """Seconds until the start has failed over a server that dies while it loads, and why."""
    begun_s = time.monotonic()
    async with server_process("RuntimeError", dies="loading") as server:
        try:
            await engine_at(server.port or 1, Patience(start_s=start_s)).start()
        except StartupError as fault:
            return time.monotonic() - begun_s, str(fault)
    raise AssertionError("it has started")
