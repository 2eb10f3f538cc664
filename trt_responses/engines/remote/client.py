"""A front end's side of the socket: an engine in another process.

A step of the engine is one message, passed to all its streams in one turn of the loop. Frames and
one connection at a time; `process` or another program restarts the engine's process.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import cast

from trt_responses.engine import Chunk, GenerateOptions, Health, Limits, Loss, Sink
from trt_responses.engines.admission import room
from trt_responses.engines.remote import frames
from trt_responses.engines.remote.frames import Kind, Splitter
from trt_responses.engines.remote.process import EngineProcess
from trt_responses.errors import EngineUnavailable, StartupError

logger = logging.getLogger(__name__)

NUMBERS = 1 << 32
KNOWN_CHUNKS = 1 << 16
LAST_WORDS_S = 3.0
"""Time to wait for the reason of a death."""
RETRY_S = 0.1


class ChunksOfOne(dict[int, Chunk]):
    """Cached chunks of single ids: creating one costs more than the rest of a hop."""

    def __missing__(self, token_id: int) -> Chunk:
        chunk = Chunk((token_id,))
        if len(self) < KNOWN_CHUNKS:
            self[token_id] = chunk
        return chunk


class RemoteEngine:
    """The engine that is served at `path`, or by this server's own process."""

    def __init__(
        self,
        version: str,
        *,
        path: str = "",
        process: EngineProcess | None = None,
        start_s: float = 1800.0,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`version` must equal the version of the engine's process."""
        self._version = version
        self._path = path
        self._process = process
        self._start_s = start_s
        self._now_ns = now_ns
        self._numbers = itertools.count(1)
        self._connection: Connection | None = None
        self._life: asyncio.Task[None] | None = None
        self._limits = Limits(0, 0)
        self._down: str | None = "The engine has not been started."
        self._stopped = False
        self._unfit = False
        """Whether the engine's process has another version."""
        self._last_progress_ns = now_ns()

    async def start(self) -> None:
        if self._process is not None:
            await self._process.start()
            self._path = self._process.path
        try:
            async with asyncio.timeout(self._start_s):
                self._up(await self._connected())
        except TimeoutError:
            await self.stop(0)
            raise StartupError(
                f"The engine at {self._path} did not answer within {self._start_s:g} s."
            ) from None
        except BaseException:
            await self.stop(0)
            raise
        self._life = asyncio.create_task(self._live())

    def generate(
        self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink
    ) -> RemoteRequest:
        down = self._why_not()
        if down is not None:
            raise EngineUnavailable(down, retry_after_s=1 if self._is_alive() else None)
        assert self._connection is not None
        room(len(prompt_ids), options, self._limits)
        number = next(self._numbers) % NUMBERS
        self._connection.begin(number, prompt_ids, options, sink)
        return RemoteRequest(self._connection, number)

    def health(self) -> Health:
        connection, use, queued, restarts = self._connection, None, None, 0
        if connection is not None:
            if connection.received_ids:
                connection.received_ids, self._last_progress_ns = False, self._now_ns()
            if (state := connection.health) is not None:
                self._last_progress_ns = max(self._last_progress_ns, state.last_progress_ns)
                use, queued, restarts = state.cache_use, state.queued, state.restarts
        down, last_ns = self._why_not(), self._last_progress_ns
        return Health(self._is_alive(), down is None, last_ns, down, use, queued, restarts)

    def limits(self) -> Limits:
        if self._connection is not None and self._connection.limits is not None:
            self._limits = self._connection.limits
        return self._limits

    async def stop(self, deadline_s: float) -> None:
        self._down, self._stopped = "The engine has been stopped.", True
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        if self._connection is not None:
            self._connection.fail(self._down)
            self._connection.close()
        if self._process is not None:
            await self._process.stop(deadline_s)

    def _is_alive(self) -> bool:
        return not self._unfit and (self._process is None or self._process.alive)

    def _why_not(self) -> str | None:
        """Why the engine accepts no requests now, or None."""
        if self._down is not None:
            return (self._process.fault if self._process and not self._stopped else None) or (
                self._down
            )
        assert self._connection is not None
        state = self._connection.health
        return None if state is None or state.ready else state.reason or "The engine is not ready."

    async def _live(self) -> None:
        """Reconnect after each loss, while the engine's process has this version."""
        while True:
            connection = self._connection
            assert connection is not None
            await connection.lost.wait()
            self._down = "The engine's process has closed the connection."
            if self._process is not None:
                self._down = await self._process.why(LAST_WORDS_S)
            logger.warning("lost the connection to the engine, reconnecting: %s", self._down)
            connection.fail(self._down, lost="died")
            try:
                self._up(await self._connected())
            except StartupError as error:  # the package was upgraded under a running server
                self._down, self._unfit = str(error), True
                logger.error("%s", error)
                return

    def _up(self, connection: Connection) -> None:
        self._connection, self._down = connection, None
        self._last_progress_ns = self._now_ns()
        self.limits()

    async def _connected(self) -> Connection:
        """A connection that has received the engine's state, which may take long while the engine
        loads."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                _, connection = await loop.create_unix_connection(Connection, self._path)
            except OSError:
                await asyncio.sleep(RETRY_S)
                continue
            try:
                await connection.informed.wait()
                if connection.version is not None:
                    self._check(connection.version)
                    return connection
            except BaseException:
                connection.close()
                raise

    def _check(self, version: str) -> None:
        if version != self._version:
            raise StartupError(
                f"The engine's process has version {version}, and this server has {self._version}: "
                "install the same version in both environments."
            )


class RemoteRequest:
    """The handle of one request."""

    __slots__ = ("_connection", "_number")

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._number = number

    def abort(self) -> None:
        self._connection.abort(self._number)


class Connection(asyncio.Protocol):
    """One connection, and the sinks of its requests."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.health: Health | None = None
        self.limits: Limits | None = None
        self.received_ids = False
        """Whether ids have arrived since the last health check."""
        self.informed = asyncio.Event()
        """Set when the state has arrived, or the connection is lost."""
        self.lost = asyncio.Event()
        self._pushes: dict[int, Callable[[Chunk], None]] = {}
        self._chunks = ChunksOfOne()
        self._splitter = Splitter()
        self._unsent: list[bytes] = []
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.informed.set()
        self.lost.set()

    def begin(
        self, number: int, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink
    ) -> None:
        """Send a request; its chunks go to the sink."""
        self._pushes[number] = sink.push
        self._write(frames.generate(number, prompt_ids, options))

    def abort(self, number: int) -> None:
        if self._pushes.pop(number, None) is not None:
            self._write(frames.abort(number))

    def fail(self, reason: str, *, lost: Loss | None = None) -> None:
        """End every request with an error."""
        for number in tuple(self._pushes):
            self._push(number, Chunk(finish="error", error=reason, lost=lost))

    def close(self) -> None:
        self._send()
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Process received bytes. After an invalid frame the rest is meaningless: the connection is
        dropped, and requests resume over another one."""
        try:
            self._take(data)
        except frames.UNREADABLE as fault:
            logger.warning("dropping the connection to the engine: unreadable frame: %s", fault)
            if self._transport is not None:
                self._transport.abort()

    def _take(self, data: bytes) -> None:
        """Pass what has come to its streams. Several steps at once mean that this process is behind
        the engine: then each stream gets its ids in one chunk, its last one too, for one write."""
        received = list(self._splitter.feed(data))
        if len(received) == 1 and received[0][0] == Kind.IDS:
            self._take_step(received[0][1])
            return
        ids_of: defaultdict[int, list[int]] = defaultdict(list)
        for kind, body in received:
            if kind in (Kind.IDS, frames.SINGLES):
                for number, token_id in frames.read_ids(body):
                    ids_of[number].append(token_id)
            elif kind == Kind.RUNS:
                for number, ids in frames.read_runs(body):
                    ids_of[number] += ids
            elif kind == Kind.CHUNKS:
                for number, chunk in frames.read_chunks(body):
                    earlier = ids_of.pop(number, [])
                    if chunk.logprobs and earlier:
                        self._push(number, Chunk(earlier))
                    elif earlier:
                        chunk = chunk._replace(token_ids=[*earlier, *chunk.token_ids])
                    self._push(number, chunk)
            elif kind == Kind.STATE:
                self.version, self.health, self.limits = frames.read_state(body)
                self.informed.set()
        for number, ids in ids_of.items():
            self._push(number, Chunk(ids))

    def _take_step(self, body: bytes) -> None:
        """The hot path: pass one step's ids to their streams."""
        self.received_ids = True
        pushes, chunks = self._pushes, self._chunks
        for number, token_id in frames.read_ids(body):
            push = pushes.get(number)
            if push is not None:  # else it was aborted meanwhile
                try:
                    push(chunks[token_id])
                except Exception:  # one sink that raises must not stop the others
                    logger.exception("a request's sink failed")

    def _push(self, number: int, chunk: Chunk) -> None:
        """Pass one chunk to its stream; the last one ends the request."""
        self.received_ids = True
        push = self._pushes.get(number)
        if chunk.finish is not None:
            self._pushes.pop(number, None)
        if push is not None:
            try:
                push(chunk)
            except Exception:  # likewise
                logger.exception("a request's sink failed")

    def _write(self, data: bytes) -> None:
        """Send with what else is sent in this turn of the loop: requests come in groups."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._send)
        self._unsent.append(data)

    def _send(self) -> None:
        data, transport = b"".join(self._unsent), self._transport
        self._unsent.clear()
        if transport is not None and not transport.is_closing():
            transport.write(data)
