"""One request to the child: one connection, made, read and cut. Also the request's handle.

Knows bytes on a socket and when to stop; what the events mean is read in `llamacpp_events`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import httptools

from trt_responses.engine.base import Chunk
from trt_responses.engine.llamacpp import body
from trt_responses.engine.llamacpp.events import Events, fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trt_responses.engine.base import GenerateOptions, Sink
    from trt_responses.engine.llamacpp.body import Words
    from trt_responses.engine.llamacpp.process import Child
    from trt_responses.engine.slots import Slot

BROKEN = "The engine's process broke the connection before the answer was complete."


class Stream(asyncio.Protocol):
    """Waits until it is told to `connect`; then each read of the socket is at most one push.

    `on_over` is called once, before the last push, when the request is over in whatever way.
    """

    def __init__(
        self,
        prompt_ids: Sequence[int],
        options: GenerateOptions,
        words: Words,
        sink: Sink,
        on_over: Callable[[Stream], None],
        now_ns: Callable[[], int],
    ) -> None:
        self.prompt_ids = prompt_ids
        self.options = options
        self.slot: Slot | None = None
        self.ids: list[int] = []
        self.over = False
        self.answered = False
        self.broken = False
        """Ended by the engine's process, not by anything the engine said."""
        self.last_byte_ns = now_ns()
        self._words = words
        self._sink = sink
        self._on_over = on_over
        self._now_ns = now_ns
        self._events = Events(options)
        self._parser = httptools.HttpResponseParser(self)
        self._request = b""
        self._body = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connect(self, child: Child) -> asyncio.Task[None]:
        assert self.slot is not None
        content = body.body(self._words, self.slot)
        head = (
            f"POST {child.path} HTTP/1.1\r\nHost: {child.host}:{child.port}\r\n"
            f"Authorization: Bearer {child.api_key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        )
        self._request = head.encode() + content
        self.last_byte_ns = self._now_ns()
        self._task = asyncio.create_task(self._open(child.host, child.port))
        return self._task

    def abort(self) -> None:
        if not self.over:
            self._leave()

    def fail(self, reason: str) -> None:
        self.end(Chunk(finish="error", error=reason))

    def end(self, chunk: Chunk) -> None:
        """Push the last chunk, unless the request is over already."""
        if not self.over:
            self.ids += chunk.token_ids
            self.answered = chunk.finish != "error"
            self._leave()
            self._sink.push(chunk)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.over:
            self._transport.abort()
        else:
            self._transport.write(self._request)
            self._request = b""

    def data_received(self, data: bytes) -> None:
        self.last_byte_ns = self._now_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            return self._break(BROKEN)
        if self.over or self._parser.get_status_code() != 200:
            return None
        chunk = self._events.feed(bytes(self._body))
        self._body.clear()
        if chunk is None:
            return None
        if chunk.finish is not None:
            return self.end(chunk)
        self.ids += chunk.token_ids
        return self._sink.push(chunk)

    def connection_lost(self, exc: Exception | None) -> None:
        self._break(BROKEN)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status != 200:
            self.fail(fault(bytes(self._body), status))

    async def _open(self, host: str, port: int) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        except OSError as error:
            self._break(f"The engine's process does not answer: {error.strerror or error}.")

    def _break(self, reason: str) -> None:
        self.broken = not self.over
        self.fail(reason)

    def _leave(self) -> None:
        self.over = True
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            self._task.cancel()
        self._on_over(self)


class Answer:
    """A sink that waits for the end."""

    def __init__(self) -> None:
        self.end: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()

    def push(self, chunk: Chunk, /) -> None:
        if chunk.finish is not None and not self.end.done():
            self.end.set_result(chunk)
