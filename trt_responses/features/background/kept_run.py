"""A background run, and how much of its log the store has.

Knows the log and the store's seam; knows no task and no lease."""

from __future__ import annotations

import asyncio
from array import array

from trt_responses.features.background.resumable import Grace
from trt_responses.log.entries import ResponsesSpelling
from trt_responses.log.log import Cursor
from trt_responses.run.ending import ending
from trt_responses.run.run import Run
from trt_responses.store import Job, Record
from trt_responses.stores.whole import Frames, WholeStore
from trt_responses.wire import events as e
from trt_responses.wire.response import Response


class KeptRun:
    """A run, and how much of its log the store has."""

    def __init__(self, run: Run, before: Job | None = None) -> None:
        """`before` is the job as another server has kept it."""
        self.run = run
        self.term = 1 if before is None else before.term
        self.making: asyncio.Task[None] | None = None
        self.leaving = False
        """Whether it is being left to another server."""
        self.left = False
        """Whether nothing more of it may be kept here."""
        self.grace: Grace | None = None
        """Of a foreground run: how long it goes on without a reader."""
        if (first := run.log.response).background:
            run.log.append(e.Created(first))
            run.log.append(e.Queued(first))
        self._saving = asyncio.Lock()
        self._saved = 0 if before is None else before.frames
        self._saved_ids = 0 if before is None else len(before.ids) // 4
        self._cursor = Cursor(run.log, after=self._saved - 1)
        self._unsaved = b""
        self._pending: Frames | None = None
        """The frames sent to the store, until it answers."""

    @property
    def has_news(self) -> bool:
        return self.run.log.next_number > self._saved

    async def changed(self, wait_s: float) -> None:
        """Wait for an event, or so long."""
        if not self.run.log.closed:
            await asyncio.wait((self.run.log.changed(),), timeout=wait_s)

    async def save(self, store: WholeStore, *, last: bool = False) -> None:
        """Keep the frames that are new. Frames that cannot be kept now are kept the next time;
        after the `last` call nothing is kept."""
        async with self._saving:
            if self.left or self.run.ending:
                return
            if not (await self._settle(store) and await self._append(store, self._news())):
                self.run.cancel()  # another server has it, or it was reported as failed
                return
            self.left = last

    async def finish(
        self, store: WholeStore, record: Record, conversation: Record | None, last: Response
    ) -> bool:
        """Keep the record, its conversation's next version and the last frames, before the end is
        sent. Returns False when the store refuses them."""
        async with self._saving:
            if not await self._settle(store):
                return False
            frames = self._news()
            closing = ending(last, self.run.error)
            spelling = ResponsesSpelling(self.run.log.dialect)
            numbered = enumerate(closing, frames.first + frames.count)
            closing_frames = [spelling.frame(event, number) for number, event in numbered]
            data = b"".join((frames.data, *closing_frames))
            whole = Frames(frames.first, frames.count + len(closing_frames), data, ended=True)
            return await store.finish_job(record, whole, conversation, term=self.term)

    async def _settle(self, store: WholeStore) -> bool:
        """Ask again for what was not answered, as it was: it may be kept, and a store takes nothing
        longer in its place. Returns False when the store refuses it."""
        return self._pending is None or await self._append(store, self._pending)

    async def _append(self, store: WholeStore, frames: Frames) -> bool:
        """Whether the job is still ours; if it is, the frames are kept."""
        if not frames.count:
            return True
        self._pending = frames
        if not await store.append_frames(self.run.id, frames, term=self.term):
            return False
        self._saved = frames.first + frames.count
        self._saved_ids += len(frames.ids) // 4
        self._pending, self._unsaved = None, b""
        return True

    def _news(self) -> Frames:
        """The frames that are not kept yet. A run that is made again has none until it has come to
        where it was."""
        count = self.run.log.next_number - self._saved
        if count <= 0:
            return Frames(self._saved, 0, b"")
        self._unsaved += self._cursor.take()
        ids = array("I", self.run.reader.kept[self._saved_ids :]).tobytes()
        return Frames(self._saved, count, self._unsaved, ids=ids)
