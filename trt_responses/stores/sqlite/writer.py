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

from trt_responses.stores.sqlite.file import is_full, told

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trt_responses.stores.sqlite.reserve import Reserve

    Change = Callable[[sqlite3.Connection], object]

T = TypeVar("T")

AT_ONCE = 256
IDLE_S = 30.0


class _Asked(NamedTuple):
    change: Change
    frees: bool
    done: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


STOP: Sequence[_Asked] = ()


class Writer:
    """Makes changes in the order in which they were asked for, and `idle` when nothing is."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        idle: Change,
        reserve: Reserve,
        begins: Callable[[], None],
        committed: Change,
    ) -> None:
        """`begins` is told of each transaction, `committed` of each that was kept; both on the
        thread."""
        self._connect = connect
        self._idle = idle
        self._reserve = reserve
        self._begins = begins
        self._committed = committed
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Stop, after everything that was asked for."""
        if self._thread is not None:
            self._asked.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    async def do(self, change: Callable[[sqlite3.Connection], T], *, frees: bool = False) -> T:
        """What the change returned, once it is committed. It may be made twice, if once failed.

        One that `frees` room gets the reserve where the disk is full.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        self._asked.put(_Asked(change, frees, done, loop))
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
                _tell(batch, self._results(db, batch))
        finally:
            if db is not None:
                db.close()

    def _results(self, db: sqlite3.Connection, batch: Sequence[_Asked]) -> list[object]:
        """The result of each change, all committed together; if that fails, of each alone, or its
        fault."""
        try:
            return self._commit(db, [asked.change for asked in batch] or [self._idle])
        except Exception as fault:  # whatever broke, whoever asked for it must hear so
            if len(batch) > 1:
                return [result for asked in batch for result in self._results(db, [asked])]
            if batch and is_full(fault):
                return [self._with_room(db, batch[0])]
            return [_fault(fault)]

    def _with_room(self, db: sqlite3.Connection, asked: _Asked) -> object:
        """Make the changes once more on a full disk, with the log's room, and with the reserve if
        they free some."""
        if asked.frees:
            self._reserve.release()
        _shrink(db)
        try:
            (result,) = self._commit(db, [asked.change])
        except Exception as fault:
            return _fault(fault)
        if asked.frees:
            _shrink(db)
            self._reserve.fill()
        return result

    def _commit(self, db: sqlite3.Connection, changes: Sequence[Change]) -> list[object]:
        """The result of each change, all committed together; or nothing is changed, and it
        raises."""
        self._begins()
        try:
            db.execute("BEGIN IMMEDIATE")
            results = [change(db) for change in changes]
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        with suppress(sqlite3.Error):  # it is kept, whatever becomes of the counts
            self._committed(db)
        return results

    def _next(self) -> Sequence[_Asked]:
        """The changes that have been asked for by now; none, when there were none for a while."""
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


def _shrink(db: sqlite3.Connection) -> None:
    """Give back to the disk what the history and its log do not need, as far as may be."""
    with suppress(sqlite3.Error):
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.execute("PRAGMA incremental_vacuum(256)").fetchall()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _fault(fault: Exception) -> Exception:
    return told(fault) if isinstance(fault, sqlite3.Error) else fault


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
