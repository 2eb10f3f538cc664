"""The engine's side of the socket: serves any engine to any number of front ends.

The engine's output within one turn of the loop is one write to each front end. What a slow one does
not take at once is kept by request, so that a new stream does not wait behind the others. A front
end that is gone or does not read ends only its own requests. Frames only: no concrete engine.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import sys
from typing import Any, cast

from trt_responses.engine import Chunk, Engine, GenerateOptions, Handle
from trt_responses.engines.remote import frames
from trt_responses.engines.remote.behind import Behind
from trt_responses.engines.remote.frames import Kind, Splitter
from trt_responses.errors import ApiError

logger = logging.getLogger(__name__)

MAX_BEHIND_BYTES = 64 * 1024 * 1024
"""Maximum bytes waiting for a front end that does not read; then it is disconnected."""
QUEUE_BYTES = 32 * 1024
"""Bytes on the way to a front end: some 8,000 ids, which it takes in 30 ms. The rest is kept."""
KEEPS_PATH: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""The parent owns the socket's path and uses it for the next process; from Python 3.13 on, closing
a server would remove it."""
LOOK_S = 0.1
"""Interval of checks of the engine's health; a change is sent at once."""


class EngineServer:
    """Serves a started engine on a listening socket."""

    def __init__(
        self, engine: Engine, version: str, *, max_behind_bytes: int = MAX_BEHIND_BYTES
    ) -> None:
        self.engine = engine
        self.max_behind_bytes = max_behind_bytes
        self.front_ends: set[FrontEnd] = set()
        self.path: str | None = None
        self._version = version
        self._server: asyncio.AbstractServer | None = None
        self._looking: asyncio.Task[None] | None = None
        self._sent_state = b""

    async def start(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.path = listening.getsockname()
        self._server = await loop.create_unix_server(
            lambda: FrontEnd(self), sock=listening, **KEEPS_PATH
        )
        self._looking = asyncio.create_task(self._look())

    async def stop(self) -> None:
        """Accept no more connections, and close the present ones after their bytes are sent."""
        if self._server is not None:
            self._server.close()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        self.send_state()
        for front_end in tuple(self.front_ends):
            front_end.close()

    def state(self) -> bytes:
        return frames.state(self._version, self.engine.health(), self.engine.limits())

    def send_state(self) -> None:
        """Send the engine's state to every front end."""
        self._sent_state = self.state()
        for front_end in tuple(self.front_ends):
            front_end.write(self._sent_state)

    async def _look(self) -> None:
        while True:
            if self.state() != self._sent_state:
                self.send_state()
            await asyncio.sleep(LOOK_S)


class FrontEnd(asyncio.Protocol):
    """One connection and its requests."""

    def __init__(self, server: EngineServer) -> None:
        self._server = server
        self._engine = server.engine
        self._splitter = Splitter()
        self._handles: dict[int, Handle] = {}
        self._turn: list[tuple[frames.Pending, list[int]]] = []
        """This turn's output in order: chunks, or numbers and ids."""
        self._pending: frames.Pending = []
        """The last of it, if that is chunks."""
        self.words: list[int] = []
        """The last of it, if that is single ids."""
        self._behind = Behind()
        self._paused = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._transport.set_write_buffer_limits(QUEUE_BYTES)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUE_BYTES)
        self._server.front_ends.add(self)
        self.write(self._server.state())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.front_ends.discard(self)
        for handle in tuple(self._handles.values()):
            handle.abort()
        self._handles.clear()
        self._behind = Behind()

    def data_received(self, data: bytes) -> None:
        """Process received bytes. After an invalid frame the rest is meaningless: the front end is
        disconnected, and reconnects."""
        try:
            for kind, body in self._splitter.feed(data):
                if kind == Kind.GENERATE:
                    self._generate(*frames.read_generate(body))
                elif kind == Kind.ABORT:
                    self._abort(frames.read_abort(body))
        except frames.UNREADABLE as fault:
            logger.warning("disconnecting a front end: unreadable frame: %s", fault)
            self._give_up()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._catch_up()

    def close(self) -> None:
        self.flush()
        while self._behind:
            self.write(frames.steps(self._behind.take()))
        if self._transport is not None:
            self._transport.close()

    def write(self, data: bytes) -> None:
        """Send bytes; disconnect a front end that is too far behind."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if (
            transport.get_write_buffer_size() + self._behind.size_bytes
            > self._server.max_behind_bytes
        ):
            logger.warning("disconnecting a front end: it does not read the engine's output")
            self._give_up()

    def push(self, number: int, chunk: Chunk) -> None:
        """Send a chunk of any kind at the end of this turn of the loop."""
        if chunk.finish is not None:
            self._handles.pop(number, None)
            if chunk.finish == "error" and not self._engine.health().alive:
                chunk = chunk._replace(lost="died")  # the next process may resume it
        if not self._pending:
            self._pending, self.words = [], []
            self._add()
        self._pending.append((number, chunk))

    def new_words(self) -> list[int]:
        """A new list for numbers and ids, which is sent at the end of this turn."""
        self._pending, self.words = [], []
        self._add()
        return self.words

    def _add(self) -> None:
        if not self._turn:
            asyncio.get_running_loop().call_soon(self.flush)
        self._turn.append((self._pending, self.words))

    def flush(self) -> None:
        if turn := self._turn:
            self._turn, self._pending, self.words = [], [], []
            try:
                if self._paused or self._behind:
                    self._keep(turn)
                else:
                    self.write(b"".join(itertools.starmap(_frames, turn)))
            except Exception:  # streams must not wait for ever
                logger.exception("disconnecting a front end: the engine's output cannot be sent")
                self._give_up()

    def _keep(self, turn: list[tuple[frames.Pending, list[int]]]) -> None:
        for pending, words in turn:
            for number, chunk in pending:
                self._behind.add(number, chunk)
            for number, token_id in zip(words[::2], words[1::2], strict=True):
                self._behind.add_ids(number, (token_id,))
        self._catch_up()
        if self._paused:
            self.write(b"")  # nothing, but it may be too far behind by now

    def _catch_up(self) -> None:
        """Send what was kept, for as long as the front end takes it."""
        while self._behind and not self._paused and self._transport is not None:
            self.write(frames.steps(self._behind.take()))

    def _give_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _generate(self, number: int, prompt_ids: list[int], options: GenerateOptions) -> None:
        try:
            handle = self._engine.generate(prompt_ids, options, RemoteSink(self, number))
        except ApiError as error:
            self.push(number, Chunk(finish="error", error=error.message, refusal=error))
        except Exception as fault:  # one request's failure must not end the others
            logger.exception("failing a request: the engine raised an error")
            reason = f"The engine could not start the request ({type(fault).__name__})."
            self.push(number, Chunk(finish="error", error=reason))
        else:
            self._handles[number] = handle

    def _abort(self, number: int) -> None:
        self._behind.drop(number)
        if (handle := self._handles.pop(number, None)) is not None:
            handle.abort()


def _frames(pending: frames.Pending, words: list[int]) -> bytes:
    return frames.steps(pending) if pending else frames.single_ids(words)


class RemoteSink:
    """The sink into which the engine pushes one request's chunks."""

    __slots__ = ("_front_end", "_number")

    def __init__(self, front_end: FrontEnd, number: int) -> None:
        self._front_end = front_end
        self._number = number

    def push(self, chunk: Chunk, /) -> None:
        """The hot path: buffer the engine's output until the end of this turn. Looking up a chunk's
        fields by index costs half as much as by name."""
        ids = chunk[0]
        if len(ids) == 1 and chunk[3] is None and chunk[2] is None and not chunk[1]:
            words = self._front_end.words or self._front_end.new_words()
            words += (self._number, ids[0])
        else:
            self._front_end.push(self._number, chunk)
