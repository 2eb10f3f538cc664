"""An engine behind another server's HTTP: ids in as JSON, ids out as server-sent events.

Each request has its own connection, and closing that aborts it. This module sends and judges
requests; `distant` has the engine's life, and a wire has a server's paths and fields.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import orjson

from trt_responses.engine import Chunk, GenerateOptions, Limits, Loss, Sink
from trt_responses.engines.ask import PROBE_IDS, Ask, ignored_options
from trt_responses.engines.distant import SILENT, Away, DistantEngine, Patience, Trouble
from trt_responses.engines.http_server import Address, Reply, message_of, query
from trt_responses.engines.http_stream import Stream
from trt_responses.engines.id_events import failure
from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from trt_responses.engines.slots import Slot, Slots

logger = logging.getLogger(__name__)


class Reader(Protocol):
    """Parses the stream of one request."""

    held: Chunk | None
    """The last chunk, if only what follows it is missing."""

    def feed(self, data: bytes, /) -> Chunk | None:
        """At most one chunk for the new bytes."""
        ...


class Found(NamedTuple):
    """What a server reports of itself."""

    version: str
    model: str
    limits: Limits
    lacks: Sequence[str] = ()
    """What the server could do if it were started otherwise, each with the remedy."""


Look = Callable[..., Awaitable[Reply]]
"""Sends a small request: a path, and fields for a POST. Raises an `Away` without a reply."""


class Wire(Protocol):
    """The paths and fields of one kind of server."""

    name: str
    path: str
    """Where it generates."""
    health: str
    known: str
    """The beginning of the version for which this adapter was written."""

    async def describe(self, look: Look) -> Found:
        """What the server reports. Raises a `StartupError` of one sentence if it cannot serve."""
        ...

    def body(
        self, prompt_ids: Sequence[int], options: GenerateOptions, left: int
    ) -> Mapping[str, Any]:
        """The fields of a request for at most `left` ids, all explicit."""
        ...

    def reader(self, options: GenerateOptions, left: int) -> Reader:
        """A parser of the stream of such a request."""
        ...


class HttpEngine(DistantEngine):
    """The engine at an HTTP address."""

    def __init__(
        self,
        address: Address,
        wire: Wire,
        patience: Patience | None = None,
        *,
        others: Sequence[Wire] = (),
        key: str = "",
        find_ignored: Callable[[Ask, Sequence[int]], Awaitable[frozenset[str]]] = ignored_options,
        probe: Sequence[int] = PROBE_IDS,
    ) -> None:
        """`others`: wires to try first, where the kind of the server is not known; `key`: sent as a
        bearer token."""
        super().__init__(address, patience, find_ignored=find_ignored, probe=probe)
        self._at = address
        self._wires = (*others, wire)
        self._wire = wire
        self._tls: ssl.SSLContext | None = None
        self._headers = (f"Authorization: Bearer {key}",) if key else ()

    async def start(self) -> None:
        self._tls = self._at.context
        await super().start()

    def send(self, request: Request) -> None:
        """Connect a request that was admitted."""
        if request.over:
            return
        headers = [f"{name}: {value}" for name, value in request.options.trace_headers.items()]
        task = request.stream.connect(
            self._at.host,
            self._at.port,
            self._wire.path,
            orjson.dumps(request.fields),
            *self._headers,
            *headers,
            tls=self._tls,
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def fail(self, request: Request, chunk: Chunk, *, broken: bool) -> None:
        """End a request that the server failed, or whose connection broke, once it is known whether
        the engine is lost. A broken connection to a healthy engine loses one request alone."""
        self._spawn(self._failed(request, chunk, "died" if broken else None))

    async def _failed(self, request: Request, chunk: Chunk, lost: Loss | None) -> None:
        request.end(chunk._replace(lost=await self._judge() or lost))

    def _begin(
        self, prompt_ids: Sequence[int], options: GenerateOptions, left: int, sink: Sink
    ) -> Request:
        fields = {} if left <= 0 else self._wire.body(prompt_ids, options, left)
        reader = self._wire.reader(options, left)
        request = Request(prompt_ids, options, fields, sink, reader, self)
        if left <= 0:
            asyncio.get_running_loop().call_soon(request.end, Chunk(finish="length"))
            return request
        self._running[request] = None
        self.send(request)
        return request

    async def _describe(self) -> Limits:
        trouble = await self._trouble()
        if trouble is not None:
            raise Away(trouble.reason)
        version, model, limits, lacks = await self._found()
        self.about = "; ".join((f"{self._wire.name} {version}, model {model}", *lacks))
        if not version.startswith(self._wire.known):
            logger.warning(
                "%s runs %s %s: this adapter was written for %s",
                self.address,
                self._wire.name,
                version,
                self._wire.known,
            )
        return limits

    async def _found(self) -> Found:
        """The report of the server, read by the first wire that knows it."""
        for wire in self._wires[:-1]:
            with suppress(StartupError):
                found = await wire.describe(self._look)
                self._wire = wire
                return found
        self._wire = self._wires[-1]
        return await self._wire.describe(self._look)

    async def _trouble(self) -> Trouble | None:
        reply = await self._ask("GET", self._wire.health, b"")
        if reply.status == 200:
            return None
        return Trouble(reply.message, SILENT if reply.late else "")

    async def _look(self, path: str, fields: Mapping[str, Any] | None = None) -> Reply:
        content = b"" if fields is None else orjson.dumps(fields)
        reply = await self._ask("GET" if fields is None else "POST", path, content)
        if reply.status in (401, 403):
            raise StartupError(f"{path} is refused: {reply.message}")
        if reply.status == 0 or reply.status >= 500:
            raise Away(reply.message)
        return reply

    async def _ask(self, method: str, path: str, content: bytes) -> Reply:
        answer_s = self._patience.answer_s
        return await query(self._at, method, path, answer_s, content, self._headers)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()


class Request:
    """One request. Also its handle."""

    def __init__(
        self,
        prompt_ids: Sequence[int],
        options: GenerateOptions,
        fields: Mapping[str, Any],
        sink: Sink,
        reader: Reader,
        engine: HttpEngine,
    ) -> None:
        self.prompt_ids = prompt_ids
        self.options = options
        self.fields = fields
        self.over = False
        self.begun_ns = time.monotonic_ns()
        self.last_step_ns = 0
        """The time of the last event, or 0."""
        self.ids: list[int] = []
        self.slot: tuple[Slots, Slot] | None = None
        """The server's slot, where it has some, and whose it is."""
        self._sink = sink
        self._reader = reader
        self._engine = engine
        self.stream = Stream(self._feed, _fault, self._push, self._break)

    def _feed(self, data: bytes) -> Chunk | None:
        if not data.startswith(b":"):  # a comment, which says nothing of the engine
            self.last_step_ns = time.monotonic_ns()
        return self._reader.feed(data)

    def abort(self) -> None:
        if not self.over:
            self._leave()

    def break_off(self, reason: str, lost: Loss | None = None) -> None:
        self.end(Chunk(finish="error", error=reason, lost=lost))

    def end(self, chunk: Chunk) -> None:
        """Push the last chunk, unless the request is over already."""
        if not self.over:
            self.ids += chunk.token_ids
            self._leave()
            self._sink.push(chunk)

    def _push(self, chunk: Chunk) -> None:
        if self.stream.status != 200:
            chunk = failure(self.stream.status, chunk.error or "")
        if chunk.finish is None:
            self.ids += chunk.token_ids
            self._sink.push(chunk)
        elif chunk.finish == "error" and chunk.refusal is None:
            self.stream.leave()
            self._engine.fail(self, chunk, broken=False)
        else:
            self.end(chunk)

    def _break(self, reason: str) -> None:
        if self._reader.held is not None:
            self.end(self._reader.held)
        else:
            self._engine.fail(self, Chunk(finish="error", error=reason), broken=True)

    def _leave(self) -> None:
        self.over = True
        self.stream.leave()
        self._engine.over(self)


def _fault(body: bytes, status: int) -> str:
    return message_of(body) or f"status {status}"
