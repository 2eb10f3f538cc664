"""A log as server-sent events. Knows frames and connections; knows no model and no store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from starlette.types import Receive, Scope, Send

from trt_responses.log.log import END_OF_STREAM
from trt_responses.run.run import Run
from trt_responses.run.runs import Runs
from trt_responses.web.stream.calls import IDLE, StartedCall, calls, finish
from trt_responses.web.stream.keepalive import COMMENT, KeepAlive
from trt_responses.wire.response import Response

logger = logging.getLogger(__name__)

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "x-accel-buffering": "no",  # nginx would otherwise hold tokens back
}
BODY = "http.response.body"
DONE = {"type": BODY, "body": END_OF_STREAM}


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How long a stream may be silent, and how much may wait for its client."""

    keep_alive: KeepAlive
    max_backlog_bytes: int


class Stream:
    """Makes a run for one client and writes it down meanwhile. When the client leaves, or is
    dropped, the run ends."""

    def __init__(
        self,
        run: Run,
        runs: Runs,
        headers: dict[str, str],
        stream_limits: StreamLimits,
        last: Callable[[], bytes] = lambda: END_OF_STREAM,
    ) -> None:
        """`last` writes what stands at the end of a stream that is whole."""
        self._run = run
        self._runs = runs
        self._headers = headers
        self._stream_limits = stream_limits
        self._last = last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        leave = self._run.cancel
        try:
            await send(start_message(200, self._headers | STREAM_HEADERS))
            writer = Writer(self._run, send, leave, self._stream_limits.max_backlog_bytes)
            with self._stream_limits.keep_alive.over(writer), watched(leave, receive):
                await self._runs.make(self._run)
                whole = await writer.written()
        finally:  # also when its reply could not even begin
            await self._runs.release(self._run)
        if whole:
            await send({"type": BODY, "body": writer.rest() + self._last()})


class Follow:
    """Writes down a run that somebody else makes, from any event on. `leave` is called when its
    client has left, was dropped, or has everything."""

    def __init__(
        self,
        run: Run,
        headers: dict[str, str],
        stream_limits: StreamLimits,
        *,
        after: int = -1,
        leave: Callable[[], None] = lambda: None,
        last: Callable[[], bytes] = lambda: END_OF_STREAM,
    ) -> None:
        self._last = last
        self._run = run
        self._headers = headers
        self._stream_limits = stream_limits
        self._after = after
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send(start_message(200, self._headers | STREAM_HEADERS))
            backlog = self._stream_limits.max_backlog_bytes
            writer = Writer(self._run, send, lambda: None, backlog, after=self._after)
            with self._stream_limits.keep_alive.over(writer), watched(writer.drop, receive):
                whole = await writer.written()
        finally:
            self._leave()
        if whole:
            await send({"type": BODY, "body": writer.rest() + self._last()})


class Writer:
    """Everything in a run's log, to its end: one send for each engine step.

    It writes within the step itself while the server takes the bytes at once; only the last step
    leaves with the end of the stream. When the server makes it wait, what comes meanwhile leaves
    together, as the next send, unless it grows too large: then the client is dropped. A connection
    that cannot be written to has left.
    """

    def __init__(
        self,
        run: Run,
        send: Send,
        leave: Callable[[], None] | None = None,
        max_backlog_bytes: int | None = None,
        *,
        after: int = -1,
    ) -> None:
        self._log = run.log
        self._leave = leave or run.cancel
        self._max_backlog_bytes = max_backlog_bytes
        self._after = after
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._calls = calls(send)
        self._free = True
        """The server takes the bytes at once, and nothing is held back or over."""
        self._over = False
        self._rests = False
        """The last step is held back for the end of the stream."""
        self._sending: asyncio.Task[None] | None = None
        self._written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if missed := run.log.listen(self._write, after=after):
            self._write(missed)
        if run.log.closed:
            self._write(None)
        run.log.closing.append(self._close)

    async def written(self) -> bool:
        """Wait until the log is closed and all is sent but the `rest`. False when the client was
        dropped; raises what `send` has raised."""
        try:
            return await self._written
        finally:
            self._log.unlisten(self._write)
            self._log.closing.remove(self._close)
            self._written.cancel()
            if self._sending is not None:
                self._sending.cancel()

    def rest(self) -> bytes:
        """The last step's frames, which leave in one send with what ends the stream."""
        return b"".join(self._held)

    def drop(self) -> None:
        """Write no more."""
        self._free = False
        if not self._written.done():
            self._written.set_result(False)

    def place(self) -> int:
        """The number of the log's next event: it changes whenever something was written."""
        return self._log.next_number

    def ping(self, *, event: bool) -> None:
        """Show that the connection lives; a client that has not read what it got knows it."""
        if self._free:
            self._write((self._log.repeated(self._after) if event else b"") or COMMENT)

    def _write(self, frames: bytes | None) -> None:
        """Send a step's frames, or hold them while the server makes us wait; None is the end."""
        if not self._free or frames is None:
            self._hold_back(frames)
            return
        try:
            waits_for = self._calls.send({"type": BODY, "body": frames, "more_body": True})
        except Exception as error:  # the server's: for the stream to hear, not for the engine
            self._give_up(error)
            return
        if waits_for is not IDLE:
            self._free = False
            self._sending = asyncio.ensure_future(self._finish(waits_for))
            self._sending.add_done_callback(self._sent)

    def _close(self) -> None:
        """Leave the last step to the end of the stream, if the server waits for nothing."""
        self._rests = self._free
        self._free = False

    def _hold_back(self, frames: bytes | None) -> None:
        """Hold frames back, up to the bound at which the client is dropped; None is the end."""
        if self._written.done():
            return
        if frames is None:
            self._over = True
            self._end()
            return
        self._held.append(frames)
        self._held_bytes += len(frames)
        if self._rests or self._max_backlog_bytes is None:
            return
        if self._held_bytes > self._max_backlog_bytes:
            logger.warning(
                "timeout: closing a stream of %s: the client reads too slowly",
                self._log.response.id,
            )
            self._held.clear()
            self.drop()
            self._leave()

    async def _finish(self, waits_for: object) -> None:
        await finish(self._calls, waits_for)

    def _sent(self, sending: asyncio.Task[None]) -> None:
        self._sending = None
        if self._written.done() or sending.cancelled():
            return
        if (error := sending.exception()) is not None:
            self._give_up(error)
            return
        frames = b"".join(self._held)
        self._held, self._held_bytes, self._free = [], 0, True
        if frames:
            self._write(frames)
        self._end()

    def _end(self) -> None:
        """End the stream if the log is closed and the server has sent all but the `rest`."""
        if self._over and self._sending is None and not self._written.done():
            self._free = False
            self._written.set_result(True)

    def _give_up(self, error: BaseException) -> None:
        self._free = False
        if not self._written.done():
            self._written.set_exception(error)
            self._written.exception()  # a stream that was cancelled does not wait for it
        self._leave()


def watched(leave: Callable[[], None], receive: Receive) -> StartedCall:
    """A block during which `leave` is called when the client hangs up, or its connection fails."""
    return StartedCall(partial(when_left, leave, receive), leave)


async def shared_end(run: Run, leave: Callable[[], None], receive: Receive) -> Response:
    """The last snapshot of a run that others read too; a client that hangs up waits no longer."""
    try:
        with watched(leave, receive):
            await run.ended()
    finally:
        leave()
    return run.log.response


async def when_left(leave: Callable[[], None], receive: Receive) -> None:
    """Wait until the client hangs up, then call `leave`."""
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()


def start_message(status: int, headers: dict[str, str]) -> dict[str, object]:
    """The message that begins a reply."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": raw}
