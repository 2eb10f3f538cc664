"""Frames out of a store as server-sent events: those it has, and those that it gets meanwhile.

Knows frames and connections; knows no store and no log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.types import Receive, Scope, Send

from trt_responses.errors import ApiError
from trt_responses.features.background.replay import Pause
from trt_responses.tasks import beside
from trt_responses.web.stream.keepalive import COMMENT, KeepAlive
from trt_responses.web.stream.sse import DONE, STREAM_HEADERS, start_message, when_left

logger = logging.getLogger(__name__)

POLL_S = 0.5
"""Between two askings of the store for more."""


class Tail:
    """Writes frames to their end. The client may leave, or be as slow as it likes: no more is
    held for it than one piece of frames."""

    def __init__(
        self,
        headers: dict[str, str],
        keep_alive: KeepAlive,
        sleep: Callable[[float], Awaitable[None]],
        frames_of: Callable[[Pause], AsyncIterator[bytes]],
    ) -> None:
        """`frames_of` gives the frames to write, and awaits `pause` before it asks for more."""
        self._headers = headers
        self._keep_alive = keep_alive
        self._sleep = sleep
        self._silent_s = 0.0
        self._pings = 0
        """Signs of life since the last frames."""
        self._send: Send | None = None
        self._frames = frames_of(self._pause)
        self._first = b""

    async def begin(self) -> None:
        """Fetch the first frames now, so that a refusal is raised before any header has gone."""
        self._first = await anext(self._frames, b"")

    async def _pause(self, repeated: Callable[[], bytes]) -> None:
        """Wait before the store is read again. When the client has waited long it gets a comment,
        or the `repeated` event, as it would from the server that makes the run."""
        await self._sleep(POLL_S)
        self._silent_s += POLL_S
        if self._silent_s >= self._keep_alive.every_s:
            self._silent_s = 0.0
            self._pings += 1
            is_event = self._keep_alive.is_event(self._pings)
            await self._write_down((repeated() if is_event else b"") or COMMENT)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send = send
        await send(start_message(200, self._headers | STREAM_HEADERS))
        leaving = when_left(lambda: None, receive)
        async with beside(self._write()) as writing, beside(leaving) as watching:
            await asyncio.wait((writing, watching), return_when=asyncio.FIRST_COMPLETED)
        if not writing.cancelled():
            writing.result()

    async def _write(self) -> None:
        assert self._send is not None
        try:
            if self._first:
                await self._send_frames(self._first)
            async for frames in self._frames:
                await self._send_frames(frames)
        except ApiError as fault:  # too late for a status: the client goes on from where it was
            logger.warning("lost a replay of stored events: %s", fault.message)
            return
        await self._send(DONE)

    async def _send_frames(self, body: bytes) -> None:
        self._silent_s, self._pings = 0.0, 0
        await self._write_down(body)

    async def _write_down(self, body: bytes) -> None:
        assert self._send is not None
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
