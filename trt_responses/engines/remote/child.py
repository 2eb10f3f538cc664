"""The main program of the engine's process: creates an engine, serves it, and ends with its parent.

It reads one line of JSON on standard input, and later one with the deadline of the shutdown. It
writes lines of JSON on standard output: ready or failed, then heartbeats from the event loop that
also runs the streams. It ends with `os._exit`, since an engine's package may leave threads that
never end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from trt_responses import __version__
from trt_responses.children import die_with
from trt_responses.engine import Engine
from trt_responses.engines.remote.server import EngineServer
from trt_responses.errors import StartupError, root_cause

Say = Callable[[dict[str, object]], None]

BEAT_S = 0.5
LAST_BYTES_S = 0.2
"""Time to send the last bytes."""


def host(make: Callable[[Any], Engine]) -> None:
    """Host the engine that `make` creates from the parent's data. Never returns."""
    first = json.loads(sys.stdin.readline())
    die_with(first["parent"])
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # prints of a package must not mix with these lines
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")

    def say(message: dict[str, object]) -> None:
        answer.write(json.dumps(message) + "\n")
        answer.flush()

    status = 1
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            status = runner.run(_Life(say).live(make, first))
            sys.stderr.flush()
            os._exit(status)  # skips the runner's own cleanup, which would wait for threads
    except BaseException as error:  # any error is reported to the parent, and ends the process
        say({"failed": f"The engine's process failed: {root_cause(error)}"})
    finally:
        sys.stderr.flush()
        os._exit(status)


class _Life:
    def __init__(self, say: Say) -> None:
        self._say = say
        self._stop = asyncio.Event()
        self._deadline_s = 0.0

    async def live(self, make: Callable[[Any], Engine], first: dict[str, Any]) -> int:
        threading.Thread(
            target=self._wait_for_parent, args=[asyncio.get_running_loop()], daemon=True
        ).start()
        try:
            engine = make(first["given"])
            await engine.start()
        except StartupError as error:
            self._say({"failed": str(error)})
            return 1
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        server = EngineServer(engine, __version__)
        await server.start(socket.socket(fileno=first["listening"]))
        self._say({"ready": True})
        lost = await self._until_end(engine)
        if lost is None:
            await engine.stop(self._deadline_s)
        await server.stop()
        await asyncio.sleep(LAST_BYTES_S)
        return 0 if lost is None else 1

    async def _until_end(self, engine: Engine) -> str | None:
        """Send heartbeats until the parent ends the process. Returns the reason if the engine is
        lost first."""
        while not self._stop.is_set():
            health = engine.health()
            if not health.alive:
                lost = health.reason or "the engine reported no reason"
                self._say({"lost": lost.removesuffix(".")})
                return lost
            self._say({})
            try:
                async with asyncio.timeout(BEAT_S):
                    await self._stop.wait()
            except TimeoutError:
                continue
        return None

    def _wait_for_parent(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for the parent's line in a thread, so that an engine that blocks the loop also ends
        with its parent."""
        self._deadline_s = float(sys.stdin.readline() or 0)
        loop.call_soon_threadsafe(self._stop.set)
        threading.Event().wait(self._deadline_s + 2 * LAST_BYTES_S)
        os._exit(1)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # optional in an environment for the engine alone
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
