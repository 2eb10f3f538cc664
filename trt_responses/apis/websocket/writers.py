"""A response as the text frames of a WebSocket: while its connection makes it, and while it goes on
without.

Knows logs, server-sent events and frames; knows no store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from starlette.types import Message, Send

from trt_responses.run.run import Run
from trt_responses.web.stream.sse import Writer

FIELDS_OF_SOCKET = ("type", "stream_id", "generate")


class FrameWriter(Writer):
    """Writes a run's events, each as a frame. There are no comments between frames."""

    def __init__(self, run: Run, send: Send, max_backlog_bytes: int) -> None:
        self._send_frames = _as_text(send)
        super().__init__(run, self._send_frames, max_backlog_bytes=max_backlog_bytes)

    async def written(self) -> bool:
        whole = await super().written()
        if whole and (rest := self.rest()):
            await self._send_frames({"body": rest})
        return whole

    def ping(self, *, event: bool) -> None:
        if event:
            super().ping(event=True)


def _as_text(send: Send) -> Send:
    """The `send` of a stream, for frames that are a message each."""

    async def send_frames(message: Any) -> None:
        for frame in message["body"].split(b"\n\n")[:-1]:
            await send({"type": "websocket.send", "text": frame.decode()})

    return send_frames


def request_of(fields: Mapping[str, Any]) -> bytes:
    """The body of the same request over HTTP, for another server; nothing where a number is too
    long."""
    body = {name: value for name, value in fields.items() if name not in FIELDS_OF_SOCKET}
    try:
        return orjson.dumps(body | {"stream": True})
    except TypeError:
        return b""


class KeptFrames:
    """Both ends of the stream of a response that goes on without its connection: it receives that
    the client has left, and sends frames."""

    def __init__(
        self,
        tell: Callable[[str], Awaitable[None]],
        stream_id: str | None,
        headers: Mapping[str, str],
    ) -> None:
        """`headers` are those of a reply over HTTP; they stand in the first event."""
        self._tell = tell
        self._lane = {"stream_id": stream_id} if stream_id else {}
        self._first = {"headers": dict(headers)} if headers else {}
        self._left = asyncio.Event()
        self._rest = b""

    def drop(self) -> None:
        """Write no more: the client has left."""
        self._left.set()

    async def receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        *frames, self._rest = (self._rest + message.get("body", b"")).split(b"\n\n")
        for frame in frames:
            name, _, data = frame.partition(b"\ndata: ")
            if data and name != b"event: error":
                await self._tell(self._as_text(data))

    def _as_text(self, data: bytes) -> str:
        more, self._first = {**self._lane, **self._first}, {}
        added = b"," + orjson.dumps(more)[1:] if more else b"}"
        return (data[:-1] + added).decode()
