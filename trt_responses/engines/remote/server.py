"""The engine's side of the socket: any engine, for any number of front ends.

What the engine pushes within one turn of the loop leaves as one write to each front end. A front
end that is gone, or does not read, ends its own requests and nobody else's. Knows frames; knows no
concrete engine.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from trt_responses.engine import Chunk
from trt_responses.engines.remote import frames
from trt_responses.engines.remote.frames import Kind, Splitter
from trt_responses.errors import ApiError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from trt_responses.engine import Engine, GenerateOptions, Handle, Sink

logger = logging.getLogger(__name__)

MAX_BEHIND_BYTES = 64 * 1024 * 1024
"""Bytes that may wait for a front end that does not read, before it is given up."""
KEEPS_PATH: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""The socket's path is the parent's, which serves the next process there; from Python 3.13 on a
server that closes would remove it."""
LOOK_S = 0.1
"""Seconds between two looks at the engine's health; a change is told at once."""


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
        self._told = b""

    async def start(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.path = listening.getsockname()
        self._server = await loop.create_unix_server(
            lambda: FrontEnd(self), sock=listening, **KEEPS_PATH
        )
        self._looking = asyncio.create_task(self._look())

    async def stop(self) -> None:
        """Take no more connections, and end those there are once their bytes have left."""
        if self._server is not None:
            self._server.close()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        self.tell()
        for front_end in tuple(self.front_ends):
            front_end.close()

    def state(self) -> bytes:
        return frames.state(self._version, self.engine.health(), self.engine.limits())

    def tell(self) -> None:
        """Send the engine's state to every front end."""
        self._told = self.state()
        for front_end in tuple(self.front_ends):
            front_end.write(self._told)

    async def _look(self) -> None:
        while True:
            if self.state() != self._told:
                self.tell()
            await asyncio.sleep(LOOK_S)


class FrontEnd(asyncio.Protocol):
    """One connection, and the requests that came over it."""

    def __init__(self, server: EngineServer) -> None:
        self._server = server
        self._engine = server.engine
        self._splitter = Splitter()
        self._handles: dict[int, Handle] = {}
        self._turn: list[Callable[[], bytes]] = []
        """What makes the frames of all that was pushed within this turn, in its order."""
        self._pending: frames.Pending = []
        """The last of it, while that is chunks."""
        self.words: list[int] = []
        """The last of it, while that is numbers and ids of requests that got one id alone."""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._server.front_ends.add(self)
        self.write(self._server.state())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.front_ends.discard(self)
        for handle in tuple(self._handles.values()):
            handle.abort()
        self._handles.clear()

    def data_received(self, data: bytes) -> None:
        """After bytes that are no frame nothing has a meaning any more: the front end is given
        up, and connects again."""
        try:
            for kind, body in self._splitter.feed(data):
                if kind == Kind.GENERATE:
                    self._generate(*frames.read_generate(body))
                elif kind == Kind.ABORT:
                    self._abort(frames.read_abort(body))
        except frames.UNREADABLE as fault:
            logger.warning("A front end has sent what cannot be read: %s", fault)
            self._give_up()

    def close(self) -> None:
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def write(self, said: bytes) -> None:
        """Send bytes, unless the front end is gone, or so far behind that it is given up."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(said)
        if transport.get_write_buffer_size() > self._server.max_behind_bytes:
            logger.warning("A front end does not read what the engine says, and is given up.")
            self._give_up()

    def push(self, number: int, chunk: Chunk) -> None:
        """Send a chunk of any kind at the end of this turn of the loop."""
        if chunk.finish is not None:
            self._handles.pop(number, None)
            if chunk.finish == "error" and not self._engine.health().alive:
                chunk = chunk._replace(lost="died")  # the next process may go on with it
        if not self._pending:
            self._pending, self.words = [], []
            self._add(partial(frames.steps, self._pending))
        self._pending.append((number, chunk))

    def new_words(self) -> list[int]:
        """An empty list for numbers and ids, which are sent at the end of this turn."""
        self._pending, self.words = [], []
        self._add(partial(frames.single_ids, self.words))
        return self.words

    def _add(self, frames_of: Callable[[], bytes]) -> None:
        if not self._turn:
            asyncio.get_running_loop().call_soon(self.flush)
        self._turn.append(frames_of)

    def flush(self) -> None:
        if turn := self._turn:
            self._turn, self._pending, self.words = [], [], []
            try:
                said = b"".join(frames_of() for frames_of in turn)
            except Exception:  # what cannot be said must not leave streams waiting for ever
                logger.exception("The engine pushed what cannot be sent.")
                self._give_up()
            else:
                self.write(said)

    def _give_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _generate(self, number: int, prompt_ids: list[int], options: GenerateOptions) -> None:
        try:
            handle = self._engine.generate(prompt_ids, options, self._sink(number))
        except ApiError as error:
            self.push(number, Chunk(finish="error", error=error.message, refusal=error))
        except Exception as fault:  # a request that breaks must not end those beside it
            logger.exception("The engine could not take a request.")
            said = f"The engine could not take the request ({type(fault).__name__})."
            self.push(number, Chunk(finish="error", error=said))
        else:
            self._handles[number] = handle

    def _sink(self, number: int) -> Sink:
        return RemoteSink(self, number)

    def _abort(self, number: int) -> None:
        if (handle := self._handles.pop(number, None)) is not None:
            handle.abort()


class RemoteSink:
    """The sink into which the engine pushes one request's chunks."""

    __slots__ = ("_front_end", "_number")

    def __init__(self, front_end: FrontEnd, number: int) -> None:
        self._front_end = front_end
        self._number = number

    def push(self, chunk: Chunk, /) -> None:
        """Hold what the engine says until the end of this turn. It is the hot path: a chunk's
        fields are looked up by their places, which costs half of what their names do."""
        ids = chunk[0]
        if len(ids) == 1 and chunk[3] is None and chunk[2] is None and not chunk[1]:
            words = self._front_end.words or self._front_end.new_words()
            words += (self._number, ids[0])
        else:
            self._front_end.push(self._number, chunk)
