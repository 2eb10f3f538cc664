"""One HTTP request with a streamed reply: sends, reads and cancels it.

Bytes on a socket only: each engine parses its own events.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from time import monotonic_ns
from typing import cast

import httptools

from trt_responses.engine import Chunk
from trt_responses.engines.http_server import request_bytes

BROKEN = "The engine broke the connection before the answer was complete."


class Stream(asyncio.Protocol):
    """Each socket read causes at most one call of `on_chunk`. The last call is `on_chunk` with a
    finish, or `on_break` with a reason; after `leave` there are no calls.

    `read` returns a chunk of the new bytes, or None; `fault` returns the message for a refusal's
    body and status."""

    def __init__(
        self,
        read: Callable[[bytes], Chunk | None],
        fault: Callable[[bytes, int], str],
        on_chunk: Callable[[Chunk], None],
        on_break: Callable[[str], None],
    ) -> None:
        self.last_byte_ns = monotonic_ns()
        self._on_chunk = on_chunk
        self._on_break = on_break
        self._over = self._whole = False
        self._read = read
        self._fault = fault
        self._parser = httptools.HttpResponseParser(self)
        self._request = b""
        self._body = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connect(
        self,
        host: str,
        port: int,
        path: str,
        content: bytes,
        *headers: str,
        tls: ssl.SSLContext | None = None,
    ) -> asyncio.Task[None]:
        """Connect and send this JSON, with additional `headers`."""
        self._request = request_bytes("POST", host, port, path, content, headers)
        self._task = asyncio.create_task(self._open(host, port, tls))
        return self._task

    @property
    def status(self) -> int:
        """The status of the reply; 0 before it began."""
        return int(self._parser.get_status_code())

    def leave(self) -> None:
        """Close the connection, which frees the engine's slot. Idempotent."""
        self._over = True
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            self._task.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._over:
            self._transport.abort()
        else:
            self._transport.write(self._request)
            self._request = b""

    def data_received(self, data: bytes) -> None:
        self.last_byte_ns = monotonic_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            return self._break(BROKEN)
        if self._over or self._parser.get_status_code() != 200:
            return None
        chunk = self._read(bytes(self._body))
        self._body.clear()
        if chunk is not None:
            self._on_chunk(chunk)
        if self._whole:  # and it has no end of the request
            self._break(BROKEN)
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._break(BROKEN)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._whole = True
        status = self._parser.get_status_code()
        if status != 200 and not self._over:
            self._on_chunk(Chunk(finish="error", error=self._fault(bytes(self._body), status)))

    async def _open(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, host, port, ssl=tls)
        except OSError as error:
            self._break(f"The engine does not answer: {error.strerror or error}.")

    def _break(self, reason: str) -> None:
        if not self._over:
            self.leave()
            self._on_break(reason)
