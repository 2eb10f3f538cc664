"""The engine's process from within: makes an engine, serves it, and never outlives its parent.

One line of JSON comes in on standard input, and later one that says how long an end may take. On
standard output go lines of JSON: that it is ready, or why it failed, and then signs of life, from
the very loop that must turn for the streams. The end is `os._exit`, since what an engine's package
leaves behind may wait for ever.
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
"""Seconds that the last bytes have to leave."""


def host(make: Callable[[Any], Engine]) -> None:
    """Host the engine that is made from what the parent has given. Never returns."""
    first = json.loads(sys.stdin.readline())
    die_with(first["parent"])
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a package prints must not reach the parent's lines
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")

    def say(said: dict[str, object]) -> None:
        answer.write(json.dumps(said) + "\n")
        answer.flush()

    status = 1
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            status = runner.run(_Life(say).live(make, first))
            sys.stderr.flush()
            os._exit(status)  # not even the runner's own end, which would wait for threads
    except BaseException as error:  # of any class: the parent is told, and it is the end
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
        """Give signs of life until the parent ends the process, or the engine is lost: then the
        reason."""
        while not self._stop.is_set():
            health = engine.health()
            if not health.alive:
                lost = health.reason or "the engine gave no reason"
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
        """Wait for the parent's word, in a thread, since an engine that holds the loop must end
        with its parent too."""
        self._deadline_s = float(sys.stdin.readline() or 0)
        loop.call_soon_threadsafe(self._stop.set)
        threading.Event().wait(self._deadline_s + 2 * LAST_BYTES_S)
        os._exit(1)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # an environment for the engine alone need not have it
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
