"""A log as server-sent events. Knows frames and connections; knows no model and no store."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trt_responses.response.log import END_OF_STREAM, Cursor
from trt_responses.web.eager import IDLE, calls, rest
from trt_responses.web.keepalive import COMMENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from trt_responses.response.run import Run
    from trt_responses.response.runs import Runs
    from trt_responses.web.keepalive import KeepAlive

logger = logging.getLogger(__name__)

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "x-accel-buffering": "no",  # nginx would otherwise hold tokens back
}
BODY = "http.response.body"
DONE = {"type": BODY, "body": END_OF_STREAM}


@dataclass(frozen=True, slots=True)
class Terms:
    """What every stream is held to."""

    keep_alive: KeepAlive
    max_backlog_bytes: int


class Stream:
    """Makes a run and writes it down while it is made. When its client leaves, `leave` is called:
    it ends the run, unless others are reading."""

    def __init__(
        self,
        run: Run,
        runs: Runs,
        headers: dict[str, str],
        terms: Terms,
        leave: Callable[[], None],
    ) -> None:
        self._run = run
        self._runs = runs
        self._headers = headers
        self._terms = terms
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send(start_message(200, self._headers | STREAM_HEADERS))
            writer = Writer(self._run, send, self._leave, self._terms.max_backlog_bytes)
            with self._terms.keep_alive.over(writer):
                async with asyncio.TaskGroup() as tasks:
                    watching = tasks.create_task(when_left(self._leave, receive))
                    await self._runs.make(self._run)
                    whole = await writer.written()
                    watching.cancel()
        finally:  # also when its reply could not even begin
            self._runs.release(self._run)
        if whole:
            await send(DONE)


class Follow:
    """Writes down a run that somebody else makes, from any event on. Its client may leave."""

    def __init__(
        self,
        run: Run,
        headers: dict[str, str],
        terms: Terms,
        *,
        after: int = -1,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        self._run = run
        self._headers = headers
        self._terms = terms
        self._after = after
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send(start_message(200, self._headers | STREAM_HEADERS))
            backlog = self._terms.max_backlog_bytes
            writer = Writer(self._run, send, lambda: None, backlog, after=self._after)
            with self._terms.keep_alive.over(writer):
                async with asyncio.TaskGroup() as tasks:
                    watching = tasks.create_task(when_left(writer.drop, receive))
                    whole = await writer.written()
                    watching.cancel()
        finally:
            self._leave()
        if whole:
            await send(DONE)


class Writer:
    """Everything in a run's log, to its end: one send for what each engine step brought.

    It writes within the step itself while the server takes the bytes at once. When the server
    makes it wait, what comes meanwhile leaves together, as the next send, unless it grows too
    large: then the client is dropped. A connection that cannot be written to has left.
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
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._calls = calls(send)
        self._send = self._calls.send
        self._take = Cursor(run.log, after=after).take
        self._free = True
        """The server takes the bytes at once, and nothing is held back or over."""
        self._sending: asyncio.Task[None] | None = None
        self._written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        run.log.listen(self._write)
        self._write()

    async def written(self) -> bool:
        """When the log is closed and all of it is sent, or False when the client was dropped;
        raises what `send` has raised."""
        try:
            return await self._written
        finally:
            self._log.unlisten(self._write)
            self._written.cancel()
            if self._sending is not None:
                self._sending.cancel()

    def drop(self) -> None:
        """Write no more."""
        self._free = False
        if not self._written.done():
            self._written.set_result(False)

    def place(self) -> int:
        """How far the log has come."""
        return self._log.next_number

    def ping(self) -> None:
        """Show that the connection lives; a client that has not taken what it got knows it."""
        if self._sending is None and not self._written.done():
            self._say(COMMENT)

    def _write(self) -> None:
        if not self._free or self._log.closed:
            self._write_slowly()
        elif frames := self._take():  # `_say`, written out: 0.05 µs a token
            try:
                asked = self._send({"type": BODY, "body": frames, "more_body": True})
            except Exception as error:
                self._give_up(error)
                return
            if asked is not IDLE:
                self._wait(asked)

    def _write_slowly(self) -> None:
        if self._sending is not None:
            if self._max_backlog_bytes is not None:
                self._hold(self._max_backlog_bytes)
            return
        if self._written.done():
            return
        closed = self._log.closed
        frames = self._take()
        self._free = True
        if self._held:
            frames = b"".join((*self._held, frames))
            self._held, self._held_bytes = [], 0
        if frames and not self._say(frames):
            return
        if closed:
            self._free = False
            self._written.set_result(True)

    def _say(self, frames: bytes) -> bool:
        """Whether the server has taken them, so that more may follow."""
        message = {"type": BODY, "body": frames, "more_body": True}
        try:
            asked = self._send(message)
        except Exception as error:  # the server's: for the stream to hear, not for the engine
            self._give_up(error)
            return False
        if asked is IDLE:
            return True
        self._wait(asked)
        return False

    def _wait(self, asked: object) -> None:
        self._free = False
        self._sending = asyncio.ensure_future(self._rest(asked))
        self._sending.add_done_callback(self._sent)

    async def _rest(self, asked: object) -> None:
        await rest(self._calls, asked)

    def _sent(self, sending: asyncio.Task[None]) -> None:
        self._sending = None
        if self._written.done() or sending.cancelled():
            return
        if (error := sending.exception()) is not None:
            self._give_up(error)
        else:
            self._write()

    def _hold(self, at_most: int) -> None:
        """A slow client's frames, counted: they are made now, to be sent when it takes them."""
        if self._written.done() or not (frames := self._take()):
            return
        self._held.append(frames)
        self._held_bytes += len(frames)
        if self._held_bytes > at_most:
            logger.warning("a client of %s is too slow and was dropped", self._log.response.id)
            self._held.clear()
            self.drop()
            self._leave()

    def _give_up(self, error: BaseException) -> None:
        self._free = False
        if not self._written.done():
            self._written.set_exception(error)
        self._leave()


async def when_left(leave: Callable[[], None], receive: Receive) -> None:
    """The owner of a foreground run is its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()


def start_message(status: int, headers: dict[str, str]) -> dict[str, object]:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": raw}
