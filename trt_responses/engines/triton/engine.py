"""An engine on a Triton server: sends ids over HTTP to a model that this project exported.

Each request is a `generate_stream` on its own connection; closing it cancels the request on Triton.
No Harmony here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import orjson

from trt_responses.engine import Chunk, GenerateOptions, Health, Limits, Sink
from trt_responses.engines.admission import room
from trt_responses.engines.http_server import Address as HttpAddress
from trt_responses.engines.http_server import query
from trt_responses.engines.http_stream import Stream
from trt_responses.engines.triton.events import Events, fault
from trt_responses.engines.triton.fields import DESCRIBE, body_of, limits_of
from trt_responses.errors import EngineUnavailable, StartupError

LOOK_S = 2.0
"""Interval of readiness checks."""
ANSWER_S = 10.0
"""Timeout of a readiness check."""
MISSES = 3
"""Readiness checks in a row without an answer, and without a byte for any request, after which its
requests are lost."""


class Address(NamedTuple):
    """The address of a model on a Triton server."""

    host: str
    port: int
    model: str

    @property
    def path(self) -> str:
        return f"/v2/models/{self.model}"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.model}"


def address_of(text: str) -> Address:
    """The address in a text `host:port/model`."""
    place, _, model = text.removeprefix("http://").partition("/")
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal() or not model:
        raise StartupError(f"{text!r:.100} is not a Triton model: use host:port/model.")
    return Address(host, int(port), model)


class TritonEngine:
    """The engine that a Triton server serves."""

    def __init__(
        self,
        address: Address,
        *,
        answer_s: float = ANSWER_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.address = address
        self._answer_s = answer_s
        self._sleep = sleep
        self._limits = Limits(0, 0)
        self.down: str | None = "The engine has not been started."
        self._last_progress_ns = time.monotonic_ns()
        self._running: dict[_Request, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        body = orjson.dumps({"input_ids": [0], "parameters": {DESCRIBE: True}})
        status, reply_body = await self._query("POST", "/generate", body)
        if status != 200:
            raise StartupError(f"{self.address}: {fault(reply_body, status)}")
        reply = orjson.loads(reply_body)
        if "limits" not in reply:
            raise StartupError(
                f"{self.address} is not a model of `trt-responses export triton`: it does not "
                "report its limits."
            )
        self._limits = limits_of(reply["limits"])
        self.down = None
        self._looking = asyncio.create_task(self._look())

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> _Request:
        if self.down is not None:
            raise EngineUnavailable(self.down, retry_after_s=1)
        left = room(len(prompt_ids), options, self._limits)
        request = _Request(self, sink)
        if left <= 0:
            asyncio.get_running_loop().call_soon(request.push, Chunk(finish="length"))
            return request
        task = request.stream.connect(
            self.address.host,
            self.address.port,
            f"{self.address.path}/generate_stream",
            body_of(prompt_ids, options),
        )
        self._running[request] = None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return request

    def health(self) -> Health:
        last_bytes = (request.stream.last_byte_ns for request in self._running)
        last = max(self._last_progress_ns, *last_bytes, 0)
        return Health(alive=True, ready=self.down is None, last_progress_ns=last, reason=self.down)

    def limits(self) -> Limits:
        return self._limits

    async def stop(self, deadline_s: float) -> None:
        self.down = "The engine has been stopped."
        if self._looking is not None:
            self._looking.cancel()
        for request in tuple(self._running):
            request.push(Chunk(finish="error", error=self.down))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def over(self, request: _Request) -> None:
        self._running.pop(request, None)
        self._last_progress_ns = max(self._last_progress_ns, request.stream.last_byte_ns)

    async def _look(self) -> None:
        """Watch the model's readiness. Requests continue while Triton answers that the model is not
        ready: its engine may be restarting."""
        misses = 0
        while True:
            await self._sleep(LOOK_S)
            before_ns = self.health().last_progress_ns
            status, reply_body = await self._query("GET", "/ready", b"")
            moved = self.health().last_progress_ns > before_ns
            misses = misses + 1 if status == 0 and not moved else 0
            if status == 200:
                self.down = None
                self._last_progress_ns = time.monotonic_ns()
            elif not (status == 0 and moved):
                self.down = fault(reply_body, status).replace("refused the request", "is not ready")
            if misses >= MISSES:
                for request in tuple(self._running):
                    request.break_off(self.down or "it is frozen")

    async def _query(self, way: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of a small request; status 0 and a reason if there was no answer."""
        place = HttpAddress(self.address.host, self.address.port)
        reply = await query(place, way, f"{self.address.path}{path}", self._answer_s, body)
        if reply.status == 0:
            return 0, orjson.dumps({"error": reply.reason})
        return reply.status, reply.body


class _Request:
    """One request with its sink. Also its handle."""

    def __init__(self, engine: TritonEngine, sink: Sink) -> None:
        self._engine = engine
        self._sink = sink
        self.stream = Stream(Events().feed, fault, self.push, self.break_off)
        self._over = False

    def push(self, chunk: Chunk) -> None:
        if self._over:
            return
        if chunk.finish is not None:
            self._end()
        self._sink.push(chunk)

    def break_off(self, reason: str) -> None:
        """End a request because Triton broke the connection or is frozen. It may resume once Triton
        answers."""
        self._engine.down = reason
        self.push(Chunk(finish="error", error=reason, lost="died"))

    def abort(self) -> None:
        if not self._over:
            self._end()

    def _end(self) -> None:
        self._over = True
        self.stream.leave()
        self._engine.over(self)
