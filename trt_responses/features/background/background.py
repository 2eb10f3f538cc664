"""Background runs belong to the server: they continue without a client, and any replica can report
their progress.

A job is stored before `queued` is sent, is renewed while its run continues, and becomes a record,
with its last frames, before its end is sent. If a server dies or gives up a job, another one takes
it over and resumes from the ids in its frames; so nothing is sent before it is stored. Knows the
store's seam and runs; knows no HTTP and no concrete store.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress

import orjson

from trt_responses.accept.accepted import Accepted
from trt_responses.errors import ApiError, NotFound, Overloaded, ServerDraining
from trt_responses.features.background.kept_run import KeptRun
from trt_responses.features.background.resumable import (
    Grace,
    note_reader,
    resumable_s,
)
from trt_responses.features.background.source import run_of, source_of
from trt_responses.features.background.step import BackgroundStep
from trt_responses.frozen import replace
from trt_responses.run.commit import Write
from trt_responses.run.ending import End
from trt_responses.run.request import RunRequest
from trt_responses.run.run import Run
from trt_responses.run.runs import Runs
from trt_responses.store import Found, Job, Record
from trt_responses.stores.whole import Lock, WholeStore
from trt_responses.wire.dialect import Dialect
from trt_responses.wire.response import Response, ResponseFault

logger = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
"""Seconds between two saves of a job; fewer, if its lease is short."""
HEARTBEATS_PER_LEASE = 3
STEERED = "steered"
"""The writer in the lock of a server that has a message for a running response."""
TELL_S = 0.05
"""Seconds for which frames gather before they are kept, while somebody reads them."""


class Background:
    """Starts background runs, keeps their jobs alive, and ends them when a client asks."""

    def __init__(
        self,
        runs: Runs,
        store: WholeStore,
        *,
        count: Callable[[str, int], int],
        max_per_owner: int,
        model: str = "",
        check_streams: Callable[[], None] = lambda: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`count` adds to the background responses that an owner has, and says how many they are,
        here and in other front ends of this engine. `check_streams` raises once a stream may wait
        no longer for more."""
        self._runs = runs
        self._store = store
        self._check_streams = check_streams
        self._max_per_owner = max_per_owner
        self._model = model
        self._sleep = sleep
        self._heartbeat_s = min(HEARTBEAT_S, store.lease_s / HEARTBEATS_PER_LEASE)
        self._kept: dict[str, KeptRun] = {}
        """The runs that are being made, by their ids: of two with one id, the later one."""
        self._of_runs: dict[Run, KeptRun] = {}
        self._count = count
        self._tasks: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def life(self, drain_s: float) -> AsyncIterator[None]:
        """Let runs be started while the context lasts; at its end they have `drain_s` to end."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            looking = tasks.create_task(self._look()) if self.can_move else None
            try:
                yield
            finally:
                if looking is not None:
                    looking.cancel()
                await self._drain(drain_s)
                self._tasks = None

    async def _drain(self, drain_s: float) -> None:
        making = [kept.making for kept in self._of_runs.values() if kept.making is not None]
        if making and drain_s > 0:
            await asyncio.wait(making, timeout=drain_s)
        for kept in tuple(self._of_runs.values()):
            kept.run.shut_down()

    @property
    def can_move(self) -> bool:
        """Whether other servers go on with what this one leaves: then the frames in the store are
        what all readers read."""
        return self._store.takeover_s > 0

    async def start(
        self,
        accepted: Accepted,
        *,
        owner: str,
        arrival_ns: int,
        dialect: Dialect,
        request: bytes = b"",
    ) -> Run:
        """A run that is being made. Raises an `ApiError` when it cannot be, and then nothing is
        kept. The `request` is what another server would make the run from."""
        self._check_alive()
        self._admit(owner)
        try:
            step = BackgroundStep(self._finish)
            wanted = RunRequest(accepted, owner, arrival_ns, dialect, steps=(step,), body=request)
            run = await self._runs.start(wanted)
            source = source_of(run, accepted, request) if request and self.can_move else b""
            kept = await self._stored(run, source)
        except BaseException:
            self._forget(owner)
            raise
        self._begin(kept, resumable_s(accepted), moves=bool(source))
        return run

    def _begin(self, kept: KeptRun, grace_s: int, *, moves: bool) -> None:
        assert self._tasks is not None
        if (before := self._kept.get(kept.run.id)) is not None:
            before.run.cancel()  # its lease ran out, and this server has picked up the job itself
        self._kept[kept.run.id] = self._of_runs[kept.run] = kept
        kept.run.kept = True
        if grace_s:
            kept.grace = Grace(kept.run, grace_s, self._store, self._sleep)
        kept.making = self._tasks.create_task(self._make(kept))
        if moves:
            kept.run.leave_to_others = lambda: self._leave(kept)

    async def _stored(self, run: Run, source: bytes) -> KeptRun:
        kept = KeptRun(run)
        made = run.log.response.created_at
        body = orjson.dumps(replace(run.log.response, status="queued"))  # until frames are kept
        job = Job(run.id, run.owner, body, made, source=source, model=self._model)
        try:
            if source:
                await self._extend_lock(run)
            await self._store.put_job(job)
            self._check_alive()
        except BaseException:
            await self._runs.release(run)
            with suppress(ApiError):  # it may be there, though that was not answered
                await self._store.delete(run.id, run.owner)
            raise
        return kept

    def _check_alive(self) -> None:
        """Raise when `life` is over: other parts of a server that is stopped may still end."""
        if self._tasks is None:
            raise ServerDraining(
                "The server is being stopped and begins no new response: try again."
            )

    async def _extend_lock(self, run: Run) -> None:
        """Its conversation stays locked as long as another server may go on with it."""
        await run.outlive(self._store.lease_s + self._store.takeover_s)

    # --- jobs of servers that died or left ----------------------------------------------------

    async def _look(self) -> None:
        """Take jobs that other servers have left, one after another, while there is room for
        work."""
        while True:
            await self._sleep(self._heartbeat_s)
            try:
                while self._runs.takes_work:
                    job = await self._store.take_job(self._model)
                    if job is None or not await self._go_on(job):
                        break
            except ApiError as fault:
                logger.warning("failed to look for lost jobs to resume: %s", fault.message)
            except Exception:
                logger.exception("failed to take over a lost job")

    async def _go_on(self, job: Job) -> bool:
        """Go on with a job where another server stopped, or leave it to the next server, or fail it
        for good. Returns False when there was no room for it, and so for no other."""
        try:
            run, grace_s = await self._made_again(job)
        except ApiError as fault:
            passing = fault.status >= 500 or fault.status in (409, 429)
            logger.warning("cannot resume %s: %s", job.id, fault.message)
            await self._store.leave_job(job.id, term=job.term, to_others=passing)
            return not passing
        except asyncio.CancelledError:  # this server ends
            await self._store.leave_job(job.id, term=job.term, to_others=True)
            raise
        except Exception:
            await self._store.leave_job(job.id, term=job.term, to_others=False)
            raise
        tokens = len(job.ids) // 4
        logger.warning("resuming %s after %d tokens (taken over)", job.id, tokens)
        self._count(job.owner, 1)
        self._begin(KeptRun(run, job), grace_s, moves=True)
        return True

    async def _made_again(self, job: Job) -> tuple[Run, int]:
        made = run_of(job, self._runs.built_in)
        if made is None:
            raise ApiError("The events of this response are not kept.", status=410)
        accepted, dialect, before, request = made
        steps, now_ns = (BackgroundStep(self._finish, before),), time.monotonic_ns()
        wanted = RunRequest(
            accepted, job.owner, now_ns, dialect, steps=steps, id=job.id, body=request
        )
        run = await self._runs.start(wanted)
        try:
            await self._extend_lock(run)
        except BaseException:
            await self._runs.release(run)
            raise
        return run, resumable_s(accepted)

    def _leave(self, kept: KeptRun) -> bool:
        """Leave a run to another server. Returns False when no other can go on with it."""
        if kept.leaving:
            return True
        if kept.run.half_way or self._tasks is None:
            return False
        kept.leaving = True
        self._tasks.create_task(self._left(kept))
        return True

    async def _left(self, kept: KeptRun) -> None:
        try:
            await kept.save(self._store, last=True)
        except Exception as fault:
            logger.warning("final save of %s failed, keeping the previous: %s", kept.run.id, fault)
            kept.left = True
        if kept.left:
            kept.run.leave()
        kept.run.cancel()

    # --- requests about them ------------------------------------------------------------------

    def reader(self, response_id: str) -> AbstractContextManager[None]:
        """A block in which somebody reads a response here."""
        kept = self._kept.get(response_id)
        return nullcontext() if kept is None or kept.grace is None else kept.grace.reader()

    async def news(self, response_id: str, owner: str, wait_s: float) -> None:
        """Wait until more of its frames are kept, or so long. A reader's frames are kept as they
        come."""
        self._check_streams()
        kept = self._kept.get(response_id)
        if kept is None:
            await note_reader(self._store, response_id, owner)
            await self._sleep(wait_s)
            return self._check_streams()
        if not kept.has_news:
            await kept.changed(wait_s)
        await self._sleep(TELL_S)
        self._check_streams()
        try:
            await kept.save(self._store)
        except ApiError as fault:
            logger.warning("failed to save events of %s: %s", response_id, fault.message)
            await self._sleep(wait_s)
        return None

    def running(self, response_id: str, owner: str) -> Run | None:
        """A run that this server is making for this owner."""
        kept = self._kept.get(response_id)
        return kept.run if kept is not None and kept.run.owner == owner else None

    async def cancel(self, response_id: str, owner: str) -> Found:
        """Ask a run to end, wherever it runs, and return what there is then."""
        kept = self._kept.get(response_id)
        if kept is not None and kept.run.owner == owner:
            kept.run.cancel()
            await kept.run.ended()
        found = await self._store.get(response_id, owner)
        if not isinstance(found, Job):  # else another server has taken over, or will
            return found
        if not await self._store.cancel_job(response_id, owner):
            return await self._store.get(response_id, owner)
        waits = max(1, int(self._store.lease_s / self._heartbeat_s))
        while isinstance(found, Job) and not found.lost and waits:
            await self._sleep(self._heartbeat_s)
            found = await self._store.get(response_id, owner)
            waits -= 1
        return found

    async def steer(self, response_id: str, owner: str) -> bytes:
        """Have the server that makes a run end it as steered. Returns its request, which that
        leaves here."""
        lock = Lock(_steer_key(response_id), owner, STEERED)
        await self._store.lock(lock, self._store.lease_s + self._store.takeover_s)
        await self.cancel(response_id, owner)
        left = await self._store.get(_steer_key(response_id), owner)
        await self._store.unlock(lock)
        if not isinstance(left, Record):
            return b""
        await self._store.delete(left.id, owner)
        return left.body

    async def _stop(self, kept: KeptRun, *, requested: bool) -> None:
        """End a run that another server owns now, or requested to end."""
        end = End("cancelled")
        try:
            if requested and await self._is_steered(kept):
                end = End("incomplete", reason="steered")
        except ApiError as fault:
            logger.warning("failed to steer %s: %s", kept.run.id, fault.message)
        kept.run.end_as(end)

    async def _is_steered(self, kept: KeptRun) -> bool:
        """Whether a message waits at another server; it gets the request."""
        key, draft = _steer_key(kept.run.id), kept.run.draft
        if await self._store.lock(Lock(key, kept.run.owner, kept.run.id), self._heartbeat_s):
            return False
        if draft is not None and not _has_secrets(draft.request.accepted):
            made_s, body = kept.run.log.begun.created_at, draft.request.body
            left = Record(key, kept.run.owner, body, (), 0, 0, False, "", made_s, version=1)
            await self._store.change(left, lock=Lock(key, kept.run.owner, STEERED))
        return True

    def drop(self, response_id: str, owner: str) -> None:
        """End the run of a response that was deleted: its result can no longer be read."""
        if (run := self.running(response_id, owner)) is not None:
            run.cancel()

    def _admit(self, owner: str) -> None:
        """Count one more run of the owner. Raises when it may not have one more."""
        if (others := self._count(owner, 1) - 1) >= self._max_per_owner:
            self._forget(owner)
            raise Overloaded(
                f"{others} background responses of yours are being made, which is all "
                "this server takes: wait until one has ended, or cancel it.",
                retry_after_s=5,
            )

    def _forget(self, owner: str) -> None:
        self._count(owner, -1)

    async def _make(self, kept: KeptRun) -> None:
        """Make a run. Faults are logged, for all runs of the server share one group of tasks."""
        try:
            await self._make_run(kept)
        except Exception:
            logger.exception("failed to end background response %s", kept.run.id)

    async def _make_run(self, kept: KeptRun) -> None:
        heartbeat = asyncio.create_task(self._renew(kept))
        watching = None if kept.grace is None else asyncio.create_task(kept.grace.watch())
        try:
            await self._runs.make(kept.run)
        except Exception:  # the edge of a run without a client
            logger.exception("failed to make background response %s", kept.run.id)
        finally:
            self._forget(kept.run.owner)  # before anything else can start in its place
            heartbeat.cancel()
            if watching is not None:
                watching.cancel()
            await asyncio.wait((heartbeat,))
            if not heartbeat.cancelled() and (fault := heartbeat.exception()) is not None:
                logger.error("lost the heartbeat of %s: %r", kept.run.id, fault)
            del self._of_runs[kept.run]
            if self._kept.get(kept.run.id) is kept:
                del self._kept[kept.run.id]
            if kept.left:
                await self._given_up(kept)

    async def _given_up(self, kept: KeptRun) -> None:
        try:
            await self._store.leave_job(kept.run.id, term=kept.term, to_others=True)
        except Exception as fault:  # its lease will run out
            logger.warning("failed to hand over %s: %s", kept.run.id, fault)

    async def _renew(self, kept: KeptRun) -> None:
        """Save new frames and look for a cancellation, until the run is over or not wanted any
        more."""
        beats = max(1, int(self._store.lease_s / HEARTBEATS_PER_LEASE / self._heartbeat_s))
        for beat in itertools.count():
            try:
                await kept.save(self._store)
                body = orjson.dumps(kept.run.log.response) if beat % beats == 0 else None
                standing = await self._store.renew_job(kept.run.id, body, term=kept.term)
            except ApiError as fault:  # away for now: within the lease it may come back
                logger.warning("failed to renew the lease of %s: %s", kept.run.id, fault.message)
            else:
                if standing != "held":
                    await self._stop(kept, requested=standing == "cancel")
                    return
            await self._sleep(self._heartbeat_s)

    async def _finish(self, write: Write, last: Response) -> None:
        kept = self._of_runs[write.run]
        if kept.left or await kept.finish(self._store, write.record, write.changed, last):
            return
        if last.status == "cancelled":
            return  # no client waits for another answer
        fault = None if write.why_refused is None else await write.why_refused()
        if isinstance(fault, NotFound):  # no server could end it otherwise
            error, write.run.error = ResponseFault("server_error", fault.message), fault
            failed = replace(
                last, status="failed", error=error, completed_at=None, incomplete_details=None
            )
            body = write.run.log.json_of(failed)
            record = dataclasses.replace(write.record, body=body, continuable=False)
            await kept.finish(self._store, record, None, failed)
            raise fault
        raise ApiError(
            "The response was deleted while it was made, or its conversation was changed, or this "
            "server was cut off from its store for so long that it counts as failed."
        )


def _steer_key(response_id: str) -> str:
    return f"steer:{response_id}"


def _has_secrets(accepted: Accepted) -> bool:
    """Whether the request names an MCP server, with its keys: then no store gets it."""
    kinds = (one.kind for one in accepted.built_in)
    return "mcp" in accepted.unsupported_tools or "mcp" in kinds
