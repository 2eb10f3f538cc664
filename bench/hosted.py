"""The scripted engine in a process of its own, and the server in front of it."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from bench.ours import SETTINGS
from bench.script import script
from tests.support.scripted.clock import StepClock
from tests.support.scripted.engine import Script, ScriptedEngine
from trt_responses import __version__
from trt_responses.app import create_app
from trt_responses.engines.remote.child import host
from trt_responses.engines.remote.client import RemoteEngine
from trt_responses.engines.remote.process import EngineProcess
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI

    from trt_responses.engine import Engine

MAX_BATCH = 4096


def app(length: int, chunk: int) -> FastAPI:
    """The server, whose engine plays such a script behind a socket."""
    return create_app(SETTINGS, engine=RemoteEngine(__version__, process=process(length, chunk)))


def process(length: int, chunk: int, steps_a_second: int = 0) -> EngineProcess:
    """The engine's process, not started: it plays such a script, as fast as it can or so many steps
    a second."""
    given = {"length": length, "chunk": chunk, "steps_a_second": steps_a_second}
    return EngineProcess((sys.executable, "-m", "bench.hosted"), given)


def made(given: dict[str, Any]) -> Engine:
    """The engine that plays the requested script."""
    played = Script(script(vocabularies.load(), given["length"]).steps(given["chunk"]))
    pace = given["steps_a_second"]
    clock = Paced(1 / pace) if pace else None
    return ScriptedEngine([played], clock=clock, max_batch=MAX_BATCH, keep_records=1)


class Paced(StepClock):
    """A clock that makes a step every so many seconds while there is work, as an engine does that
    is slower than its server."""

    def __init__(self, step_s: float) -> None:
        super().__init__()
        self.step_s = step_s
        self._due_s = 0.0
        self._ticking: asyncio.TimerHandle | None = None

    def drive(self, advance: Callable[[], bool]) -> None:
        self._next_step = advance

    def wake(self) -> None:
        if self._ticking is None:
            loop = asyncio.get_running_loop()
            self._due_s = loop.time() + self.step_s
            self._ticking = loop.call_at(self._due_s, self._tick)

    def _tick(self) -> None:
        self.steps += 1
        self._ticking = None
        if self._next_step():
            self._due_s += self.step_s  # a step that came late does not put off the others
            self._ticking = asyncio.get_running_loop().call_at(self._due_s, self._tick)


if __name__ == "__main__":
    host(made)
