"""Background runs belong to the server: they go on when nobody listens, and any replica can say how
far they are.

A job is in the store before `queued` is told, is renewed while its run goes on, and becomes a
record, with its last frames, before its end is told. Knows the store's seam and runs; knows no
HTTP and no concrete store.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import orjson

from trt_responses.errors import ApiError, Overloaded, ServerShutdown
from trt_responses.response.ending import ending
from trt_responses.response.log.entries import ResponsesSpelling
from trt_responses.response.log.log import Cursor
from trt_responses.store.base import Frames, Job
from trt_responses.wire import events as e

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from trt_responses.response.accepted import Accepted
    from trt_responses.response.run import Run
    from trt_responses.response.runs import Runs
    from trt_responses.store.base import Found, Record, Store
    from trt_responses.wire.dialect import Dialect
    from trt_responses.wire.response import Response

logger = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
"""Seconds between two saves of a job; fewer, if its lease is short."""
HEARTBEATS_PER_LEASE = 3


class Background:
    """Starts background runs, keeps their jobs alive, and ends them on somebody's word."""

    def __init__(
        self,
        runs: Runs,
        store: Store,
        *,
        max_per_owner: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._runs = runs
        self._store = store
        self._max_per_owner = max_per_owner
        self._sleep = sleep
        self._heartbeat_s = min(HEARTBEAT_S, store.lease_s / HEARTBEATS_PER_LEASE)
        self._kept: dict[str, _Kept] = {}
        self._owned: Counter[str] = Counter()
        self._tasks: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        return self._owned.total()

    @asynccontextmanager
    async def life(self, drain_s: float) -> AsyncIterator[None]:
        """While it lasts runs may be started; at its end they have `drain_s` to come to theirs."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                await self._drain(drain_s)
                self._tasks = None

    async def _drain(self, drain_s: float) -> None:
        making = [kept.making for kept in self._kept.values() if kept.making is not None]
        if making and drain_s > 0:
            await asyncio.wait(making, timeout=drain_s)
        for kept in tuple(self._kept.values()):
            kept.run.fail(ServerShutdown())

    async def start(
        self, accepted: Accepted, *, owner: str, arrival_ns: int, dialect: Dialect
    ) -> Run:
        """A run that is being made, or an `ApiError` and nothing is kept."""
        if self._tasks is None:
            raise RuntimeError("background runs are started within `life`")
        self._admit(owner)
        self._owned[owner] += 1
        try:
            run = await self._runs.start(
                accepted, owner=owner, arrival_ns=arrival_ns, keep=self._finish, dialect=dialect
            )
            kept = await self._stored(run, owner)
        except BaseException:
            self._forget(owner)
            raise
        self._kept[run.id] = kept
        kept.making = self._tasks.create_task(self._make(kept))
        return run

    async def _stored(self, run: Run, owner: str) -> _Kept:
        kept = _Kept(run, owner)
        try:
            await self._store.put_job(Job(run.id, owner, kept.body(), run.log.response.created_at))
        except BaseException:
            self._runs.release(run)
            raise
        return kept

    def running(self, response_id: str, owner: str) -> Run | None:
        """A run that this server is making for this owner."""
        kept = self._kept.get(response_id)
        return kept.run if kept is not None and kept.owner == owner else None

    async def cancel(self, response_id: str, owner: str) -> Found:
        """What there is after the run has been asked to end, wherever it runs."""
        kept = self._kept.get(response_id)
        if kept is not None and kept.owner == owner:
            kept.run.cancel()
            await kept.run.ended()
            return await self._store.get(response_id, owner)
        found = await self._store.get(response_id, owner)
        if not await self._store.cancel_job(response_id, owner):
            return await self._store.get(response_id, owner)
        waits = max(1, int(self._store.lease_s / self._heartbeat_s))
        while isinstance(found, Job) and not found.lost and waits:
            await self._sleep(self._heartbeat_s)
            found = await self._store.get(response_id, owner)
            waits -= 1
        return found

    def drop(self, response_id: str, owner: str) -> None:
        """It has been deleted: whatever comes of the run, nobody may find it."""
        if (run := self.running(response_id, owner)) is not None:
            run.cancel()

    def _admit(self, owner: str) -> None:
        if self._owned[owner] >= self._max_per_owner:
            raise Overloaded(
                f"{self._owned[owner]} background responses of yours are being made, which is all "
                "this server takes: wait until one has ended, or cancel it.",
                retry_after_s=5,
            )

    def _forget(self, owner: str) -> None:
        self._owned[owner] -= 1
        if not self._owned[owner]:
            del self._owned[owner]

    async def _make(self, kept: _Kept) -> None:
        heartbeat = asyncio.create_task(self._renew(kept))
        try:
            await self._runs.make(kept.run)
        except Exception:  # the edge of a run that has no client to be told
            logger.exception("background response %s broke", kept.run.id)
        finally:
            heartbeat.cancel()
            await asyncio.wait((heartbeat,))
            if not heartbeat.cancelled() and (fault := heartbeat.exception()) is not None:
                logger.error("the heartbeat of %s broke: %r", kept.run.id, fault)
            del self._kept[kept.run.id]
            self._forget(kept.owner)

    async def _renew(self, kept: _Kept) -> None:
        """Keep what is new and hear what is wanted, until cancelled or nothing is wanted."""
        beats = max(1, int(self._store.lease_s / HEARTBEATS_PER_LEASE / self._heartbeat_s))
        for beat in itertools.count():
            try:
                await kept.save(self._store)
                body = kept.body() if beat % beats == 0 else None
                standing = await self._store.renew_job(kept.run.id, body)
            except ApiError as fault:  # away for now: within the lease it may come back
                logger.warning("job %s could not be renewed: %s", kept.run.id, fault.message)
            else:
                if standing != "held":
                    kept.run.cancel()
                    return
            await self._sleep(self._heartbeat_s)

    async def _finish(
        self, record: Record, conversation: Record | None, run: Run, last: Response
    ) -> None:
        if await self._kept[record.id].finish(self._store, record, conversation, last):
            return
        if last.status == "cancelled":
            return  # nobody is there to be told otherwise
        raise ApiError(
            "The response was deleted while it was made, or its conversation was changed, or this "
            "server was cut off from its store for so long that it counts as failed."
        )


class _Kept:
    """A run and how much of its log the store has."""

    def __init__(self, run: Run, owner: str) -> None:
        self.run = run
        self.owner = owner
        self.making: asyncio.Task[None] | None = None
        first = run.log.response
        run.log.append(e.Created(first))
        run.log.append(e.Queued(first))
        self._saving = asyncio.Lock()
        self._cursor = Cursor(run.log)
        self._saved = 0
        self._unsaved = b""

    def body(self) -> bytes:
        """The snapshot as of now."""
        return orjson.dumps(self.run.log.response)

    async def save(self, store: Store) -> None:
        """Keep the frames that are new. What cannot be kept now is kept the next time."""
        async with self._saving:
            frames = self._news()
            if frames.count:
                await store.append_frames(self.run.id, frames)
                self._saved, self._unsaved = frames.first + frames.count, b""

    async def finish(
        self, store: Store, record: Record, conversation: Record | None, last: Response
    ) -> bool:
        """Keep the record, what its conversation has become, and the frames of its end, before
        anybody is told of it."""
        async with self._saving:
            frames = self._news()
            closing = ending(last, self.run.error)
            spelling = ResponsesSpelling(self.run.log.dialect)
            numbered = enumerate(closing, frames.first + frames.count)
            told = [spelling.frame(event, number) for number, event in numbered]
            data = b"".join((frames.data, *told))
            whole = Frames(frames.first, frames.count + len(told), data, ended=True)
            return await store.finish_job(record, whole, conversation)

    def _news(self) -> Frames:
        self._unsaved += self._cursor.take()
        return Frames(self._saved, self.run.log.next_number - self._saved, self._unsaved)
