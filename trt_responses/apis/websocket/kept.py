"""The stream of a response that goes on without its connection, as text frames of a WebSocket.

Knows server-sent events and frames; knows no run and no store.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import Message

FIELDS_OF_SOCKET = ("type", "stream_id", "generate")


def request_of(fields: Mapping[str, Any]) -> bytes:
    """The body of the same request over HTTP, for another server; nothing where a number is too
    long."""
    body = {name: value for name, value in fields.items() if name not in FIELDS_OF_SOCKET}
    try:
        return orjson.dumps(body | {"stream": True})
    except TypeError:
        return b""


class KeptFrames:
    """Both ends of such a stream: it receives that the client has left, and sends frames."""

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
