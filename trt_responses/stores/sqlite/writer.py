"""The writer thread: changes that arrive during a commit share the next one.

Transactions only: no tables. A change is reported as done after its commit, not before.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar, cast

from trt_responses.stores.sqlite.file import api_error, is_full
from trt_responses.stores.sqlite.reserve import Reserve

logger = logging.getLogger(__name__)

Change = Callable[[sqlite3.Connection], object]

T = TypeVar("T")

AT_ONCE = 256
IDLE_S = 30.0


class _Pending(NamedTuple):
    change: Change
    frees: bool
    done: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


STOP: Sequence[_Pending] = ()


class Writer:
    """Makes changes in the order of their calls, and runs `idle` when there are none."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        idle: Change,
        reserve: Reserve,
        begins: Callable[[], None],
        committed: Change,
    ) -> None:
        """`begins` is called at the start of each transaction, `committed` after each commit; both
        on the thread."""
        self._connect = connect
        self._idle = idle
        self._reserve = reserve
        self._begins = begins
        self._committed = committed
        self._queue: SimpleQueue[_Pending | None] = SimpleQueue()
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Make all queued changes, then stop."""
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    async def do(self, change: Callable[[sqlite3.Connection], T], *, frees: bool = False) -> T:
        """The result of a change, after its commit. After a failure the change may run again.

        One that `frees` space may use the reserve on a full disk.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        self._queue.put(_Pending(change, frees, done, loop))
        return cast("T", await done)

    def _run(self) -> None:
        db: sqlite3.Connection | None = None
        try:
            while (batch := self._next()) is not STOP:
                try:
                    db = db or self._connect()
                except sqlite3.Error as error:
                    _tell(batch, [api_error(error)] * len(batch))
                    continue
                _tell(batch, self._results(db, batch))
        finally:
            if db is not None:
                db.close()

    def _results(self, db: sqlite3.Connection, batch: Sequence[_Pending]) -> list[object]:
        """The results of changes that are committed together; if that fails, of each change alone,
        or its error."""
        try:
            return self._commit(db, [pending.change for pending in batch] or [self._idle])
        except Exception as fault:  # the caller of the change receives any error
            if len(batch) > 1:
                return [result for pending in batch for result in self._results(db, [pending])]
            if batch and is_full(fault):
                return [self._with_room(db, batch[0])]
            return [_fault(fault)]

    def _with_room(self, db: sqlite3.Connection, pending: _Pending) -> object:
        """Make a change again on a full disk, with a truncated log, and without the reserve if the
        change frees space."""
        if pending.frees:
            self._reserve.release()
        _shrink(db)
        try:
            (result,) = self._commit(db, [pending.change])
        except Exception as fault:
            return _fault(fault)
        if pending.frees:
            _shrink(db)
            self._reserve.fill()
        return result

    def _commit(self, db: sqlite3.Connection, changes: Sequence[Change]) -> list[object]:
        """Commit all changes together and return their results; if one raises, change nothing and
        raise."""
        self._begins()
        try:
            db.execute("BEGIN IMMEDIATE")
            results = [change(db) for change in changes]
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        with suppress(sqlite3.Error):  # the commit is done; counts are not essential
            self._committed(db)
        return results

    def _next(self) -> Sequence[_Pending]:
        """The queued changes; empty after a while without any."""
        batch = list[_Pending]()
        try:
            pending = self._queue.get(timeout=IDLE_S)
            while pending is not None:
                batch.append(pending)
                if len(batch) == AT_ONCE:
                    return batch
                pending = self._queue.get_nowait()
        except Empty:
            return batch
        if batch:  # these first, then stop
            self._queue.put(None)
            return batch
        return STOP


def _shrink(db: sqlite3.Connection) -> None:
    """Free unused space of the file and its log, as far as possible."""
    with suppress(sqlite3.Error):
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.execute("PRAGMA incremental_vacuum(256)").fetchall()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _fault(fault: Exception) -> Exception:
    error = api_error(fault) if isinstance(fault, sqlite3.Error) else fault
    logger.error("cannot write to the store: %s", error)
    return error


def _tell(batch: Sequence[_Pending], results: Sequence[object]) -> None:
    loops = {pending.loop for pending in batch}
    for loop in loops:
        mine = [
            (pending.done, result)
            for pending, result in zip(batch, results, strict=False)  # `idle` has no caller
            if pending.loop is loop
        ]
        with suppress(RuntimeError):  # the caller's loop is closed
            loop.call_soon_threadsafe(_settle, mine)


def _settle(results: Sequence[tuple[asyncio.Future[Any], object]]) -> None:
    for done, result in results:
        if done.done():
            continue  # the caller was cancelled
        if isinstance(result, Exception):
            done.set_exception(result)
        else:
            done.set_result(result)
