"""Batches: many requests in a file, answered while the engine has places that nothing else wants.

A batch is a job of the store, with a lease: if its server dies, another one goes on behind the last
answer that was kept. Knows the store's seam and uploaded files; knows no HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field

from trt_responses.errors import ApiError, InvalidRequest, Overloaded, invalid_value
from trt_responses.features.batches.making import Maker, Making, fault_of, source_of, usage_of
from trt_responses.features.files.files import LONGEST_S, SHORTEST_S
from trt_responses.store import Job, Record
from trt_responses.stores.whole import whole_store
from trt_responses.wire.base import NonEmpty, Options
from trt_responses.wire.request import Metadata

Body = dict[str, Any]
"""A batch as the API gives it."""

logger = logging.getLogger(__name__)

WINDOW_S = 86_400
HEARTBEATS_PER_LEASE = 3
OVER = ("completed", "failed", "expired", "cancelled")
LOST = fault_of(None, "server_error", "No server could go on with the batch: create it again.")
RETRY_AFTER_S = 60
"""For a client that has too many open batches."""


class OutputExpiry(Options):
    """When the files of a batch expire, from when each is written."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=SHORTEST_S, le=LONGEST_S)]


class BatchRequest(Options):
    """A request for a batch."""

    input_file_id: NonEmpty
    endpoint: NonEmpty
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: OutputExpiry | None = None


class Batches:
    """The batches that this server makes, and the look at those of others."""

    def __init__(self, maker: Maker, model: str, most_open: int) -> None:
        """Servers of one `model` go on with each other's batches. `most_open`: of one owner."""
        self._maker = maker
        self._most_open = most_open
        self._creating = asyncio.Lock()
        self._store = whole_store(maker.parts.store)
        self._model = f"batches of {model}"
        self._beat_s = min(1.0, self._store.lease_s / HEARTBEATS_PER_LEASE)
        self._tasks: asyncio.TaskGroup | None = None
        self._making = set[asyncio.Task[None]]()

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            looking = tasks.create_task(self._look())
            try:
                yield
            finally:
                self._tasks = None
                for task in (looking, *self._making):
                    task.cancel()

    async def create(self, owner: str, wanted: BatchRequest) -> Body:
        """A batch that has been stored, and is begun when nothing else is to do."""
        await self._check(owner, wanted)
        body, expiry = self._new(wanted), wanted.output_expires_after
        job = Job(
            body["id"],
            owner,
            orjson.dumps(body),
            body["created_at"],
            source=source_of(None if expiry is None else expiry.seconds),
            model=self._model,
        )
        async with self._creating:  # of batches created at once, each counts for the next
            await self._check_room(owner)
            await self._store.put_job(job)
        self._begin(job)
        return body

    async def _check(self, owner: str, wanted: BatchRequest) -> None:
        if wanted.endpoint not in self._maker.answers:
            paths = ", ".join(sorted(self._maker.answers))
            raise invalid_value("endpoint", f"expected one of {paths}")
        try:
            facts = await asyncio.to_thread(self._maker.files.facts, owner, wanted.input_file_id)
        except InvalidRequest as error:
            error.param = "input_file_id"
            raise
        if facts["purpose"] != "batch":
            raise invalid_value("input_file_id", "its purpose is not 'batch'")

    async def _check_room(self, owner: str) -> None:
        """Servers that share a store may each let one more through at the same moment."""
        open_ones = [each for each in await self.of(owner) if each["status"] not in OVER]
        if len(open_ones) >= self._most_open:
            raise Overloaded(
                f"Too many open batches: {len(open_ones)}, limit {self._most_open} "
                "(TRT_RESPONSES_OWNER_BATCHES): wait until one ends, or cancel one.",
                retry_after_s=RETRY_AFTER_S,
            )

    def _new(self, wanted: BatchRequest) -> Body:
        now = int(time.time())
        return {
            "id": self._maker.parts.mint("batch"),
            "object": "batch",
            "endpoint": wanted.endpoint,
            "input_file_id": wanted.input_file_id,
            "completion_window": "24h",
            "status": "validating",
            "created_at": now,
            "expires_at": now + WINDOW_S,
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "usage": usage_of({}),
            "metadata": wanted.metadata,
        }

    async def get(self, batch_id: str, owner: str) -> Body:
        found = await self._store.get(batch_id, owner) if is_batch(batch_id) else None
        if not isinstance(found, Job | Record):
            raise InvalidRequest(
                f"No batch with the id '{batch_id:.100}'.", status=404, code="batch_not_found"
            )
        body: Body = orjson.loads(found.body)
        if isinstance(found, Job) and found.lost:
            body |= {"status": "failed", "errors": {"object": "list", "data": [LOST]}}
        elif isinstance(found, Job) and found.cancel_requested:
            body["status"] = "cancelling"
        return body

    async def of(self, owner: str) -> list[Body]:
        """The oldest first."""
        found: list[Body] = []
        names = await self._store.ids_of(owner)
        for name in filter(is_batch, names):
            with suppress(InvalidRequest):
                found.append(await self.get(name, owner))
        return sorted(found, key=lambda body: (body["created_at"], body["id"]))

    async def cancel(self, batch_id: str, owner: str) -> Body:
        if (await self.get(batch_id, owner))["status"] not in OVER:
            await self._store.cancel_job(batch_id, owner)
        return await self.get(batch_id, owner)

    async def _look(self) -> None:
        """Take batches that other servers have left, or this one before it was started again."""
        while True:
            try:
                takes_work = self._maker.runs.takes_work
                job = await self._store.take_job(self._model) if takes_work else None
                if job is not None:
                    logger.warning("resuming %s (taken over)", job.id)
                    self._begin(job)
            except ApiError as fault:
                logger.warning("failed to look for lost batches: %s", fault.message)
            await self._maker.sleep(self._store.lease_s / HEARTBEATS_PER_LEASE)

    def _begin(self, job: Job) -> None:
        assert self._tasks is not None, "within `life`"
        task = self._tasks.create_task(self._make(job))
        self._making.add(task)
        task.add_done_callback(self._making.discard)

    async def _make(self, job: Job) -> None:
        try:
            await Making(self._maker, job, self._beat_s).make()
        except BaseException as fault:
            if isinstance(fault, Exception):
                logger.exception("cannot go on with %s", job.id)
            due_s = orjson.loads(job.body)["expires_at"]
            again = not isinstance(fault, Exception) or time.time() < due_s
            with suppress(ApiError):
                await self._store.leave_job(job.id, term=job.term, to_others=again)
            if not isinstance(fault, Exception):
                raise


def is_batch(name: str) -> bool:
    """Whether an id is that of a batch."""
    return name.startswith("batch_")
