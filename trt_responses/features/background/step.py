"""What a background run does beside any other: its job ends with it, and another server may have
begun it."""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable

from trt_responses.errors import InvalidRequest
from trt_responses.feature import Step
from trt_responses.features.background.replayed import Replayed, digest_of
from trt_responses.features.background.source import Before
from trt_responses.features.recovery.rest import moved
from trt_responses.run.commit import Write
from trt_responses.run.draft import Draft
from trt_responses.wire.response import Response

Finish = Callable[[Write, Response], Awaitable[None]]


class BackgroundStep(Step):
    """What one run in the background does."""

    order = 0

    def __init__(self, finish: Finish, before: Before | None = None) -> None:
        """`finish` stores the end; `before`: saved state of a run taken over from a server."""
        self._finish = finish
        self._before = before

    async def acquire(self, draft: Draft) -> None:
        if (before := self._before) is not None:
            draft.created_at, draft.term = before.job.created_at, before.job.term
            draft.date = before.date
            draft.left = True  # until it can go on here

    async def planned(self, draft: Draft) -> None:
        """Refuse to go on from another prompt than its first server did."""
        if self._before is not None and digest_of(draft.prompt.ids) != self._before.prompt_digest:
            raise InvalidRequest(
                "What the response goes on from has changed.", code="history_changed"
            )

    def write(self, draft: Draft) -> None:
        """Put the ids that were given there before the engine's."""
        if (before := self._before) is None:
            return
        draft.left, log = False, draft.log
        if ids := array("I", before.job.ids):
            draft.resume = draft.resume or moved
            draft.engine = Replayed(
                draft.engine,
                len(draft.prompt.ids),
                ids,
                lambda: log.renumber(before.job.frames),  # those that the ids make
            )

    async def store(self, write: Write, draft: Draft, last: Response) -> None:
        await self._finish(write, last)
