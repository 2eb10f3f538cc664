"""Servers to be killed, one after another on one port and one history: forked from a process that
has loaded everything, for thirty starts would take a minute.

`python -m tests.support.dying_server FILE`, or a database's URL, says its port. Each line it reads
is a plan: its kind, a number, and the seconds of a lease. It waits for the last server's death,
forks the next, and says its process id once it is up.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import uvicorn

from tests.support.scripted.engine import ScriptedEngine, StepClock
from tests.support.served import CALL, THOUGHT, script
from trt_responses.app import create_app
from trt_responses.settings import Settings
from trt_responses.stores.around import Around
from trt_responses.stores.limits import Bounds
from trt_responses.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from trt_responses.store import Record
    from trt_responses.stores.whole import Lock, WholeStore

BATCH = 64
LEASE_S = 1.0


def say(*words: object) -> None:
    """One write, so that two tellers' lines never mix."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class HoldsBack(Around):
    """Reports the commit of the nth record, and sends no client an event of it."""

    def __init__(self, inner: WholeStore, nth: int) -> None:
        super().__init__(inner)
        self._left = nth

    async def put(self, record: Record) -> None:
        await self.inner.put(record)
        await self._committed(record)

    async def change(
        self, conversation: Record, response: Record | None = None, *, lock: Lock | None = None
    ) -> bool:
        changed = await self.inner.change(conversation, response, lock=lock)
        if response is not None and changed:
            await self._committed(response)
        return changed

    async def _committed(self, record: Record) -> None:
        self._left -= 1
        if not self._left:
            say("committed", record.id)
            await asyncio.Event().wait()


class TellsFirst(Around):
    """The wrong order: sends at once, and commits a record when the next one comes."""

    _pending: Record | None = None

    async def put(self, record: Record) -> None:
        pending, self._pending = self._pending, record
        if pending is not None:
            await self.inner.put(pending)


class Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        say("up", os.getpid())


def store_for(plan: str, place: str) -> WholeStore:
    kind, number, lease_s = (*plan.split(), "", "", "")[:3]
    inner = store_at(place, Bounds(lease_s=float(lease_s or LEASE_S)))
    match kind:
        case "holds-back":
            return cast("WholeStore", HoldsBack(inner, int(number)))
        case "tells-first":
            return cast("WholeStore", TellsFirst(inner))
        case _:
            return inner


def store_at(place: str, bounds: Bounds) -> WholeStore:
    """The store of a file, or of a database's URL."""
    if not place.startswith("postgresql:"):
        return SqliteStore(Path(place), bounds)
    from trt_responses.stores.postgres.store import PostgresStore

    return PostgresStore(place, bounds)


def life(plan: str, place: str, listening: socket.socket) -> None:
    scripts = [script(THOUGHT), script(CALL)]

    def next_script(prompt_ids: object, options: object) -> object:
        scripts.append(scripts.pop(0))
        return scripts[0]

    clock = StepClock.manual() if plan == "stalls" else StepClock.free()
    engine = ScriptedEngine(next_script, clock=clock, max_batch=BATCH)  # type: ignore[arg-type]
    app = create_app(Settings(model="demo"), engine=engine, store=store_for(plan, place))
    config = uvicorn.Config(app, log_level="error", lifespan="on", ws="none", access_log=False)
    Server(config).run(sockets=[listening])


def main(place: str) -> None:
    store_at(place, Bounds())  # loads its client
    create_app(Settings(model="demo"), engine=ScriptedEngine([script(CALL)]))  # loads the language
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    say("port", listening.getsockname()[1])
    child = 0
    for plan in sys.stdin:
        if child:
            os.waitpid(child, 0)
        child = os.fork()
        if not child:
            life(plan.strip(), place, listening)
            os._exit(0)
    if child:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1])
