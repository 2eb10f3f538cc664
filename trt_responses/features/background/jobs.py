"""Background responses for the web: started, streamed and read, whichever server makes them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import orjson

from trt_responses.features.background.replay import frames_of
from trt_responses.features.background.snapshot import snapshot
from trt_responses.features.background.tail import Tail
from trt_responses.store import Record
from trt_responses.web.stream.sse import Follow

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from trt_responses.features.background.background import Background
    from trt_responses.run.run import Run
    from trt_responses.store import Job, Store
    from trt_responses.web.stream.sse import StreamLimits
    from trt_responses.wire.dialect import Dialect


class BackgroundJobs:
    """A response that this server makes is read from its own log; every other from the store."""

    def __init__(self, background: Background, store: Store, stream_limits: StreamLimits) -> None:
        self._background = background
        self._store = store
        self._stream_limits = stream_limits
        self.start = background.start

    def stream(self, run: Run, headers: dict[str, str]) -> ASGIApp:
        if self._background.can_move:
            return self._tail(run.id, run.owner, headers, run.log.dialect)
        return Follow(run, headers, self._stream_limits)

    async def replay(
        self, found: Record | Job, owner: str, headers: dict[str, str], dialect: Dialect, after: int
    ) -> ASGIApp:
        run = self._background.running(found.id, owner)
        if run is not None and not self._background.can_move:
            return Follow(run, headers, self._stream_limits, after=after)
        tail = self._tail(found.id, owner, headers, dialect, after)
        if isinstance(found, Record) or found.lost:
            await tail.begin()
        return tail

    def snapshot(self, job: Job, owner: str) -> bytes:
        run = None if job.lost else self._background.running(job.id, owner)
        # One that has ended here and not in the store has gone to another server.
        if run is not None and not run.log.closed:
            return orjson.dumps(run.log.response)
        return snapshot(job)

    def _tail(
        self,
        response_id: str,
        owner: str,
        headers: dict[str, str],
        dialect: Dialect,
        after: int = -1,
    ) -> Tail:
        """The stream as the store keeps it."""
        keep_alive = self._stream_limits.keep_alive
        tail = Tail(headers, keep_alive, partial(self._background.news, response_id))
        return tail.over(
            frames_of(
                self._store, response_id, owner, after=after, pause=tail.pause, dialect=dialect
            )
        )
