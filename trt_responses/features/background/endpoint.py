"""Background responses for the web: started, streamed, read and cancelled, whichever server makes
them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response  # likewise
from starlette.types import ASGIApp, Receive, Scope, Send

from trt_responses.errors import NotFound
from trt_responses.features.background import resumable
from trt_responses.features.background.background import Background
from trt_responses.features.background.replay import (
    Pause,
    beyond,
    fault_frame,
    followed,
    frames_of,
    lost_snapshot,
)
from trt_responses.features.background.tail import Tail
from trt_responses.features.stored.endpoint import check_background, there
from trt_responses.log.log import END_OF_STREAM
from trt_responses.run.run import Run
from trt_responses.store import Job, Record
from trt_responses.stores.whole import WholeStore
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.web.headers import ReplyHeaders
from trt_responses.web.stream.sse import Follow, StreamLimits
from trt_responses.wire.dialect import Dialect


class BackgroundJobs:
    """A response that this server makes is read from its own log; every other from the store."""

    def __init__(
        self,
        background: Background,
        store: WholeStore,
        headers: ReplyHeaders,
        stream_limits: StreamLimits,
    ) -> None:
        self._background = background
        self._store = store
        self._headers = headers
        self._stream_limits = stream_limits
        self.start = background.start
        self.steer = background.steer
        self.keep = resumable.check

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, prefix="/v1/responses/{response_id}")
        router.post(
            "/cancel", summary="Stop a background response", responses=replies(400, 401, 403, 404)
        )(self.cancel)
        return router

    async def cancel(self, request: Request, response_id: str, owner: Owner) -> Response:
        found = there(response_id, await self._store.get(response_id, owner))
        check_background(found, "response_id", ": hang up to end such a one")
        if isinstance(found, Job) and not found.lost:
            found = there(found.id, await self._background.cancel(found.id, owner))
        body = found.body if isinstance(found, Record) else self.snapshot(found, owner)
        return json_reply(body, self._headers(request))

    def stream(self, run: Run, headers: dict[str, str]) -> ASGIApp:
        if self._background.can_move:
            frames = partial(frames_of, self._store, run.id, run.owner, -1, run.log.dialect)
            return self._read(run.id, self._tail(run.id, run.owner, headers, frames))
        return self._read(run.id, Follow(run, headers, self._stream_limits))

    async def replay(
        self, found: Record | Job, owner: str, headers: dict[str, str], dialect: Dialect, after: int
    ) -> ASGIApp:
        run = self._background.running(found.id, owner)
        if run is not None and not self._background.can_move:
            last = partial(_end, run, after)
            follow = Follow(run, headers, self._stream_limits, after=after, last=last)
            return self._read(found.id, follow)
        runs = isinstance(found, Job) and not found.lost
        reads = followed if runs else frames_of
        frames = partial(reads, self._store, found.id, owner, after, dialect)
        tail = self._tail(found.id, owner, headers, frames)
        if isinstance(found, Record):
            await _begin(tail, found)
        elif not runs:
            await tail.begin()
        return self._read(found.id, tail)

    def _read(self, response_id: str, reading: ASGIApp) -> ASGIApp:
        async def read(scope: Scope, receive: Receive, send: Send) -> None:
            with self._background.reader(response_id):
                await reading(scope, receive, send)

        return read

    def snapshot(self, job: Job, owner: str) -> bytes:
        if job.lost:
            return lost_snapshot(job.body)
        run = self._background.running(job.id, owner)
        # One that has ended here and not in the store has gone to another server.
        if run is None or run.log.closed:
            return job.body
        return orjson.dumps(run.log.response)

    def _tail(
        self,
        of: str,
        owner: str,
        headers: dict[str, str],
        frames: Callable[[Pause], AsyncIterator[bytes]],
    ) -> Tail:
        """The stream of a response as the store keeps it."""
        news = partial(self._background.news, of, owner)
        return Tail(headers, self._stream_limits.keep_alive, news, frames)


def _end(run: Run, after: int) -> bytes:
    """The end of a run's stream, with a fault if no event came behind number `after`."""
    if after < (events := run.log.next_number):
        return END_OF_STREAM
    return fault_frame(beyond(after, events), after + 1, run.log.dialect) + END_OF_STREAM


async def _begin(tail: Tail, found: Record) -> None:
    """Begin to read an ended response, whose events are kept if it was made to be read again."""
    try:
        await tail.begin()
    except NotFound:
        remedy = ", and its stream was not resumable: get it without `stream`"
        check_background(found, "stream", remedy)
        raise
