"""One thread that writes: what is asked while it commits goes into its next commit together.

Knows transactions; knows no table. A change is told as done when it is committed, and not before.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from trt_responses.store.sqlite.file import told

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Change = Callable[[sqlite3.Connection], object]

T = TypeVar("T")

AT_ONCE = 256
IDLE_S = 30.0


class _Asked(NamedTuple):
    change: Change
    done: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


STOP: Sequence[_Asked] = ()


class Writer:
    """Makes changes in the order in which they were asked for, and `idle` when nothing is."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        idle: Change,
    ) -> None:
        self._connect = connect
        self._idle = idle
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """After everything that was asked for."""
        if self._thread is not None:
            self._asked.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    async def do(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """What the change returned, once it is committed. It may be made twice, if once failed."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        self._asked.put(_Asked(change, done, loop))
        return cast("T", await done)

    def _run(self) -> None:
        db: sqlite3.Connection | None = None
        try:
            while (batch := self._next()) is not STOP:
                try:
                    db = db or self._connect()
                except sqlite3.Error as error:
                    _tell(batch, [told(error)] * len(batch))
                    continue
                _tell(batch, _results(db, [asked.change for asked in batch] or [self._idle]))
        finally:
            if db is not None:
                db.close()

    def _next(self) -> Sequence[_Asked]:
        """What has been asked for by now; nothing, when nothing has been for a while."""
        batch = list[_Asked]()
        try:
            asked = self._asked.get(timeout=IDLE_S)
            while asked is not None:
                batch.append(asked)
                if len(batch) == AT_ONCE:
                    return batch
                asked = self._asked.get_nowait()
        except Empty:
            return batch
        if batch:  # these first, then stop
            self._asked.put(None)
            return batch
        return STOP


def _results(db: sqlite3.Connection, changes: Sequence[Change]) -> list[object]:
    """What each returned, all committed together; if that fails, each alone, or its fault."""
    try:
        db.execute("BEGIN IMMEDIATE")
        results = [change(db) for change in changes]
        db.execute("COMMIT")
    except Exception as fault:  # whatever broke, whoever asked for it must hear so
        if db.in_transaction:
            db.execute("ROLLBACK")
        if len(changes) > 1:
            return [result for change in changes for result in _results(db, [change])]
        return [told(fault) if isinstance(fault, sqlite3.Error) else fault]
    return results


def _tell(batch: Sequence[_Asked], results: Sequence[object]) -> None:
    loops = {asked.loop for asked in batch}
    for loop in loops:
        mine = [
            (asked.done, result)
            for asked, result in zip(batch, results, strict=False)  # nobody asked for `idle`
            if asked.loop is loop
        ]
        with suppress(RuntimeError):  # a loop that was closed has nobody left to be told
            loop.call_soon_threadsafe(_settle, mine)


def _settle(told: Sequence[tuple[asyncio.Future[Any], object]]) -> None:
    for done, result in told:
        if done.done():
            continue  # whoever asked has left
        if isinstance(result, Exception):
            done.set_exception(result)
        else:
            done.set_result(result)
