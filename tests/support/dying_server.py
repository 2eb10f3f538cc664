"""Servers to be killed, one after another on one port and one history: forked from a process that
has loaded everything, for thirty starts would take a minute.

`python -m tests.support.dying_server FILE` says its port. Each line it reads is a plan: its kind, a
number, and the seconds of a lease. It waits for the last server's death, forks the next, and says
its process id once it is up.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from tests.support.scripted.engine import ScriptedEngine, StepClock
from tests.support.served import CALL, THOUGHT, script
from trt_responses.app import create_app
from trt_responses.settings import Settings
from trt_responses.stores.limits import Bounds
from trt_responses.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from trt_responses.store import Lock, Record

BATCH = 64
LEASE_S = 1.0


def say(*words: object) -> None:
    """One write, so that two tellers' lines never mix."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class HoldsBack(SqliteStore):
    """Reports the commit of the nth record, and sends no client an event of it."""

    def __init__(self, path: Path, bounds: Bounds, nth: int) -> None:
        super().__init__(path, bounds)
        self._left = nth

    async def put(self, record: Record) -> None:
        await super().put(record)
        await self._committed(record)

    async def change(
        self, conversation: Record, response: Record | None = None, *, lock: Lock | None = None
    ) -> bool:
        changed = await super().change(conversation, response, lock=lock)
        if response is not None and changed:
            await self._committed(response)
        return changed

    async def _committed(self, record: Record) -> None:
        self._left -= 1
        if not self._left:
            say("committed", record.id)
            await asyncio.Event().wait()


class TellsFirst(SqliteStore):
    """The wrong order: sends at once, and commits a record when the next one comes."""

    _pending: Record | None = None

    async def put(self, record: Record) -> None:
        pending, self._pending = self._pending, record
        if pending is not None:
            await super().put(pending)


class Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        say("up", os.getpid())


def store_for(plan: str, path: Path) -> SqliteStore:
    kind, number, lease_s = (*plan.split(), "", "", "")[:3]
    bounds = Bounds(lease_s=float(lease_s or LEASE_S))
    match kind:
        case "holds-back":
            return HoldsBack(path, bounds, int(number))
        case "tells-first":
            return TellsFirst(path, bounds)
        case _:
            return SqliteStore(path, bounds)


def life(plan: str, path: Path, listening: socket.socket) -> None:
    scripts = [script(THOUGHT), script(CALL)]

    def next_script(prompt_ids: object, options: object) -> object:
        scripts.append(scripts.pop(0))
        return scripts[0]

    clock = StepClock.manual() if plan == "stalls" else StepClock.free()
    engine = ScriptedEngine(next_script, clock=clock, max_batch=BATCH)  # type: ignore[arg-type]
    app = create_app(Settings(model="demo"), engine=engine, store=store_for(plan, path))
    config = uvicorn.Config(app, log_level="error", lifespan="on", ws="none", access_log=False)
    Server(config).run(sockets=[listening])


def main(path: Path) -> None:
    create_app(Settings(model="demo"), engine=ScriptedEngine([script(CALL)]))  # loads the language
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    say("port", listening.getsockname()[1])
    child = 0
    for plan in sys.stdin:
        if child:
            os.waitpid(child, 0)
        child = os.fork()
        if not child:
            life(plan.strip(), path, listening)
            os._exit(0)
    if child:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
