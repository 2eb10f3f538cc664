"""The store in an SQLite file, which several servers on one machine may share.

A change is reported when it is committed: a response whose end a client has seen survives `kill -9`
at any moment. The event loop never waits for the disk: one thread writes, two read. Recently read
blocks are cached; each read checks in the file whether the record still exists, so that deletes by
other servers take effect at once. A delete works on a full disk too: it uses a reserve file.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import local
from typing import TypeVar

from trt_responses.errors import StartupError, StoreUnavailable
from trt_responses.store import Expired, Found, Job, Record
from trt_responses.stores.at_rest.frames import squeezed, stretched
from trt_responses.stores.at_rest.record import AtRest, at_rest
from trt_responses.stores.cache import BlockCache
from trt_responses.stores.limits import MIB, Bounds
from trt_responses.stores.sqlite import file, jobs, locks, rows
from trt_responses.stores.sqlite.reserve import Reserve
from trt_responses.stores.sqlite.writer import Writer
from trt_responses.stores.whole import Frames, Lock, Spell, Standing, Usage, says_nothing

T = TypeVar("T")

logger = logging.getLogger(__name__)

CACHE_BYTES = 8 * MIB
READERS = 2
TOUCHED_AT_MOST = 1000
"""Maximum number of buffered times of use; then they are written without another change."""


class SqliteStore:
    """An LRU in a file with limits on bytes, count and age. A record stored with a `spell` reads as
    damaged without it. `clock_s` measures ages; a monotonic clock, shared by all processes of one
    `boot`, measures leases.
    """

    def __init__(
        self,
        path: Path,
        bounds: Bounds | None = None,
        *,
        synchronous: file.Synchronous = "normal",
        spell: Spell = says_nothing,
        clock_s: Callable[[], float] = time.time,
        lease_clock_s: Callable[[], float] | None = None,
        boot: str = "",
        connect: Callable[[Path], sqlite3.Connection] = file.connect,
    ) -> None:
        self._path = path
        self._bounds = bounds or Bounds()
        self.lease_s, self.takeover_s = self._bounds.lease_s, self._bounds.takeover_s
        self._synchronous = synchronous
        self._spell = spell
        self._clock_s = clock_s
        self._steady_s = lease_clock_s or clock_s
        self._boot = boot
        self._offset_s = 0.0
        self._identity: object = None
        self._open = connect
        self.usage = Usage()
        self._cache: BlockCache[int] = BlockCache(CACHE_BYTES, self.usage)
        self._reserve = Reserve(path)
        self._dropped: Counter[str] = Counter()
        """Records dropped in the writer's current transaction."""
        self._writer = Writer(self._connect, self._tidy, self._reserve, self._begin, self._count)
        self._readers: ThreadPoolExecutor | None = None
        self._reader = local()
        self._reading: list[sqlite3.Connection] = []
        self._touched: dict[str, int] = {}

    async def start(self) -> None:
        await asyncio.to_thread(self._prepare)
        logger.info("storing responses in %s", self._path.resolve())
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="history-reader")
        self._writer.start()

    async def stop(self) -> None:
        if self._readers is None:
            return
        await self._write_touched()
        await self._writer.stop()
        await asyncio.to_thread(self._readers.shutdown)
        self._readers = None
        while self._reading:
            self._reading.pop().close()
        self._reader = local()
        self._cache.clear()

    async def migrate(self, to: int) -> None:
        """Take the file back to an earlier version. No server may run."""
        await asyncio.to_thread(file.reverted, self._path, to)

    async def check(self) -> None:
        """Check that the file exists; a full disk shows only when a change is made."""

    def _prepare(self) -> None:
        try:
            file.make_private(self._path)
            db = self._open(self._path)
        except (OSError, sqlite3.Error) as error:
            raise StartupError(f"The store {self._path} cannot be opened: {error}.") from None
        try:
            offset_s = self._clock_s() - self._steady_s()
            self._offset_s = file.prepare(db, self._path, self._boot, offset_s)
            self.usage.holds(*rows.totals(db))
        finally:
            db.close()
        self._identity = file.identity(self._path)
        self._reserve.fill()

    def _connect(self) -> sqlite3.Connection:
        return file.tuned(self._open(self._path), self._synchronous, self._reserve.log_bytes)

    # --- threads ------------------------------------------------------------------------------

    async def _write(self, change: Callable[[sqlite3.Connection], T], *, frees: bool = False) -> T:
        touched, self._touched = self._touched, {}

        def with_touches(db: sqlite3.Connection) -> T:
            rows.touch(db, [(used_at, each) for each, used_at in touched.items()])
            return change(db)

        return await self._writer.do(with_touches if touched else change, frees=frees)

    def _begin(self) -> None:
        self._dropped.clear()
        if file.identity(self._path) != self._identity:  # the open file would be lost at the end
            raise StoreUnavailable(
                "The store's file was moved or replaced: put it back, or restart the server."
            )

    def _count(self, db: sqlite3.Connection) -> None:
        for reason, count in self._dropped.items():
            self.usage.dropped[reason] += count
        self.usage.holds(*rows.totals(db))

    def _tidy(self, db: sqlite3.Connection) -> None:
        rows.evict(db, self._bounds, self._now(), self._dropped)
        db.execute("PRAGMA incremental_vacuum(256)")
        self._reserve.fill()

    async def _read(self, look: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._looked, look)

    def _looked(self, look: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._snapshot() as db:
                return look(db)
        except sqlite3.Error as error:
            raise file.api_error(error) from None

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """This thread's connection inside one transaction, for consistent reads."""
        db: sqlite3.Connection | None = getattr(self._reader, "db", None)
        if db is None:
            db = self._reader.db = self._open(self._path)
            self._reading.append(db)
        db.execute("BEGIN")
        try:
            yield db
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")

    # --- records ------------------------------------------------------------------------------

    async def put(self, record: Record) -> None:
        rests = (await at_rest(record, self._spell),)
        self._remember(rests, await self._write(lambda db: self._put(db, rests)))

    async def change(
        self, conversation: Record, response: Record | None = None, *, lock: Lock | None = None
    ) -> bool:
        changed = await at_rest(conversation, self._spell)
        rests = (await at_rest(response, self._spell), changed) if response else (changed,)

        def change(db: sqlite3.Connection) -> list[list[int]] | None:
            if not self._may_change(db, changed.row, lock):
                return None
            if lock is not None:
                locks.free(db, lock)
            return self._put(db, rests)

        return self._remember(rests, await self._write(change))

    def _may_change(self, db: sqlite3.Connection, row: Record, lock: Lock | None) -> bool:
        """Whether this is the conversation's next version and no other writer holds its lock."""
        now_s = self._lease_clock_s()
        return rows.follows(db, row) and locks.allow(db, row.id, row.owner, lock, now_s)

    async def lock(self, lock: Lock, lease_s: float) -> bool:
        return await self._write(lambda db: locks.take(db, lock, self._lease_clock_s(), lease_s))

    async def renew_lock(self, lock: Lock, lease_s: float) -> bool:
        return await self._write(lambda db: locks.renew(db, lock, self._lease_clock_s(), lease_s))

    async def unlock(self, lock: Lock) -> None:
        await self._write(lambda db: locks.free(db, lock))

    async def get(self, response_id: str, owner: str) -> Found:
        found = await self._read(lambda db: self._find(db, response_id, owner))
        self.usage.looked(found)
        if found is not None and not isinstance(found, (Expired, Job)):
            self._touched[response_id] = time.time_ns()
            if len(self._touched) > TOUCHED_AT_MOST:
                await self._write_touched()
        return found

    async def ids_of(self, owner: str) -> list[str]:
        return await self._read(lambda db: rows.ids_of(db, owner))

    async def owners(self) -> list[str]:
        return await self._read(rows.owners)

    async def replace(self, record: Record) -> bool:
        rest = await at_rest(record, self._spell)
        numbers = await self._write(lambda db: rows.replace(db, rest))
        return self._remember((rest,), None if numbers is None else [numbers])

    async def _write_touched(self) -> None:
        """Write the times of use since the last write. They are lost on a full disk."""
        with suppress(StoreUnavailable):
            await self._write(lambda db: None)

    async def delete(self, response_id: str, owner: str) -> bool:
        return await self._write(lambda db: self._delete(db, response_id, owner), frees=True)

    def _put(self, db: sqlite3.Connection, rests: Sequence[AtRest]) -> list[list[int]]:
        numbers = []
        for rest in rests:
            numbers.append(rows.put(db, rest, time.time_ns()))
            rows.evict(db, self._bounds, self._now(), self._dropped)
        return numbers

    def _remember(self, rests: Sequence[AtRest], numbers: list[list[int]] | None) -> bool:
        """Cache the blocks of stored records. Returns whether they were stored."""
        for rest, own in zip(rests, numbers or (), strict=False):
            named = zip(rest.digests, rest.blocks, strict=True)
            blocks = [replace(block, digest=digest) for digest, block in named]
            self._cache.keep(zip(own, blocks, strict=True))
        return numbers is not None

    def _find(self, db: sqlite3.Connection, response_id: str, owner: str) -> Found:
        if rows.owner_of(db, response_id) != owner:
            gone = db.execute("SELECT owner FROM expired WHERE id = ?", (response_id,)).fetchone()
            return Expired(response_id) if gone == (owner,) else None
        record = rows.load(db, response_id, self._cache, self._spell)
        if record is None:
            return jobs.load(db, response_id, self._times())
        return Expired(response_id) if self._too_old(record.created_at) else record

    def _delete(self, db: sqlite3.Connection, response_id: str, owner: str) -> bool:
        rows.sweep(db, self._bounds, self._now(), self._dropped)
        if rows.owner_of(db, response_id) != owner:
            return False
        rows.drop(db, response_id)
        rows.drop_frames(db, response_id)
        db.execute("DELETE FROM jobs WHERE id = ?", (response_id,))
        return True

    def _lease_clock_s(self) -> float:
        return self._steady_s() + self._offset_s

    def _now(self) -> rows.Now:
        return rows.Now(self._clock_s(), self._lease_clock_s())

    def _too_old(self, created_at: int) -> bool:
        age = self._bounds.max_age_s
        return age is not None and created_at <= self._clock_s() - age

    # --- jobs ---------------------------------------------------------------------------------

    async def put_job(self, job: Job) -> None:
        await self._write(lambda db: jobs.put(db, job, self._times().lease))

    async def renew_job(self, job_id: str, body: bytes | None = None, *, term: int = 1) -> Standing:
        return await self._write(lambda db: jobs.renew(db, job_id, body, term, self._times()))

    async def cancel_job(self, job_id: str, owner: str) -> bool:
        return await self._write(lambda db: jobs.cancel(db, job_id, owner, self._times()))

    async def take_job(self, model: str) -> Job | None:
        if await self._read(lambda db: jobs.left(db, model, self._times())) is None:
            return None  # avoids a write when no job is free
        return await self._write(lambda db: jobs.take(db, model, self._times()))

    async def leave_job(self, job_id: str, *, term: int, to_others: bool) -> None:
        await self._write(
            lambda db: jobs.leave(db, job_id, term, self._lease_clock_s(), to_others=to_others)
        )

    async def finish_job(
        self,
        record: Record,
        frames: Frames | None = None,
        conversation: Record | None = None,
        *,
        term: int = 1,
    ) -> bool:
        rest = await at_rest(record, self._spell)
        rests = (rest, await at_rest(conversation, self._spell)) if conversation else (rest,)
        last = await squeezed(frames) if frames else None
        numbers = await self._write(lambda db: self._finish(db, rests, last, term))
        return self._remember(rests, numbers)

    def _times(self) -> jobs.Times:
        bounds, now = self._bounds, self._lease_clock_s()
        return jobs.Times(now, now + bounds.lease_s, bounds.takeover_s, bounds.max_deaths)

    def _finish(
        self, db: sqlite3.Connection, rests: Sequence[AtRest], last: Frames | None, term: int
    ) -> list[list[int]] | None:
        """Store the job's record, then the conversation's, if any."""
        job_id = rests[0].row.id
        conversations = [rest.row for rest in rests[1:]]
        locks_of_job = [Lock(row.id, row.owner, job_id, term) for row in conversations]
        if not all(map(partial(self._may_change, db), conversations, locks_of_job)):
            return None
        if not jobs.finish(db, job_id, term, self._lease_clock_s()):
            return None
        for lock in locks_of_job:
            locks.free(db, lock)
        numbers = self._put(db, rests)
        if last is not None:
            jobs.append(db, job_id, last, self._bounds.max_frame_bytes)
        return numbers

    # --- frames -------------------------------------------------------------------------------

    async def append_frames(self, response_id: str, frames: Frames, *, term: int = 1) -> bool:
        piece, at_most = await squeezed(frames), self._bounds.max_frame_bytes

        def append(db: sqlite3.Connection) -> bool:
            if not jobs.is_of(db, response_id, term, self._times()):
                return False
            jobs.append(db, response_id, piece, at_most)
            return True

        return await self._write(append)

    async def frames_after(self, response_id: str, owner: str, after: int) -> Frames | None:
        def look(db: sqlite3.Connection) -> list[Frames]:
            mine = rows.owner_of(db, response_id) == owner
            return jobs.beyond(db, response_id, after) if mine else []

        pieces = await self._read(look)
        return await stretched(pieces, after) if pieces else None
