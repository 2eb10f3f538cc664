"""One engine of several that serve the same model, and what this server knows of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from trt_responses.engine import Chunk, Engine, GenerateOptions, Handle, Health, Sink
from trt_responses.errors import EngineUnavailable, StartupError
from trt_responses.features.several.board import own_row

logger = logging.getLogger(__name__)

RETRY_S = 5.0
"""Seconds between two starts of an engine that could not be started."""


class Replica:
    """An engine that starts, ends, and counts its requests."""

    def __init__(
        self,
        label: str,
        place: str,
        new_engine: Callable[[], Engine],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.label, self.place = label, place
        self.engine: Engine | None = None
        """None until it has started."""
        self.row = own_row()
        """What other front ends know of it, too."""
        self.requests = self.warm_requests = 0
        """Since the server's start: all, and those of which most of the prompt was known."""
        self._restarts = 0
        self._begun: dict[Request, int] = {}
        """This server's requests, each with the engine's restarts at its begin."""
        self._new_engine = new_engine
        self._sleep = sleep
        self._fault = "The engine is starting."

    # --- its life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start it. Raises a `StartupError` that names it."""
        engine: Engine | None = None
        try:
            engine = self._new_engine()
            await engine.start()
        except StartupError as error:
            self._fault = str(error)
            raise StartupError(f"{self.label} ({self.place}): {error}") from None
        except asyncio.CancelledError:  # the server stops before it has started
            if engine is not None:
                await engine.stop(0)
            raise
        self.engine = engine

    async def start_again(self, error: StartupError) -> None:
        """Start it after a start has failed, however often it fails."""
        while self.engine is None:
            logger.warning("retrying to start an engine in %g s: %s", RETRY_S, error)
            await self._sleep(RETRY_S)
            try:
                await self.start()
            except StartupError as fault:
                error = fault

    async def stop(self, deadline_s: float) -> None:
        if self.engine is not None:
            await self.engine.stop(deadline_s)

    # --- how it is ------------------------------------------------------------------------------

    def health(self) -> Health:
        if self.engine is None:
            return Health(alive=True, ready=False, last_progress_ns=0, reason=self._fault)
        health = self.engine.health()
        if health.restarts != self._restarts:
            self._restarts = health.restarts
            self.row.prefixes.clear()
        return health

    @property
    def draining(self) -> bool:
        """Whether it gets no new requests; those that it has go on."""
        return self.row.draining

    @property
    def running(self) -> int:
        return self.row.running

    @property
    def able(self) -> bool:
        """Whether it takes new requests now."""
        if self.draining:
            return False
        health = self.health()
        return health.alive and health.ready

    @property
    def places(self) -> int:
        return 0 if self.engine is None else max(1, self.engine.limits().max_batch)

    @property
    def load(self) -> float:
        """The share of its places that are in use."""
        return self.running / max(1, self.places)

    def warm(self, blocks: Sequence[int]) -> int:
        """How many blocks of a prompt, from its first on, it has read lately."""
        return self.row.prefixes.warm(blocks)

    def state(self) -> dict[str, object]:
        """How it is, as the health route and an admin see it."""
        health = self.health()
        return {
            "engine": self.label,
            "alive": health.alive,
            "ready": self.able,
            "draining": self.draining,
            "reason": health.reason,
            "running": self.running,
            "places": self.places,
            "restarts": health.restarts,
        }

    # --- its requests ---------------------------------------------------------------------------

    def generate(
        self, prompt_ids: Sequence[int], blocks: Sequence[int], options: GenerateOptions, sink: Sink
    ) -> Handle:
        if self.engine is None:
            raise EngineUnavailable(self._fault, retry_after_s=5)
        request = Request(self, sink)
        self.row.add(1)
        try:
            request.handle = self.engine.generate(prompt_ids, options, request)
        except BaseException:
            self.row.add(-1)
            raise
        self._begun[request] = self._restarts
        self.requests += 1
        self.warm_requests += 2 * self.warm(blocks) > len(blocks)
        self.row.prefixes.add(blocks)
        return request

    def move(self) -> None:
        """End the requests that wait for an engine to start again, so that their runs go on at
        another one."""
        health = self.health()
        if not health.ready:
            for request, restarts in tuple(self._begun.items()):
                if restarts != health.restarts:
                    request.lose(health.reason or "The engine has died.")

    def ended(self, request: Request) -> None:
        """Note that a request holds no place any more."""
        self._begun.pop(request, None)
        self.row.add(-1)

    def judged(self, chunk: Chunk) -> Chunk:
        """The last chunk of a request, where the engine's own death is not the request's fault."""
        if chunk.finish != "error":
            return chunk
        if chunk.lost is None and chunk.refusal is None and not self.health().alive:
            chunk = chunk._replace(lost="died")
        if chunk.lost is not None:
            self.row.prefixes.clear()
        return chunk


class Request:
    """A request to a replica: the engine's sink, and its requester's handle."""

    __slots__ = ("_over", "_push", "_replica", "handle")

    def __init__(self, replica: Replica, sink: Sink) -> None:
        self._replica = replica
        self._push = sink.push
        self.handle: Handle | None = None
        self._over = False

    def push(self, chunk: Chunk, /) -> None:
        """The hot path: a chunk's finish is looked up by index, which costs half as much."""
        if chunk[3] is not None:
            chunk = self._replica.judged(chunk)
            self._end()
        self._push(chunk)

    def abort(self) -> None:
        if self.handle is not None:
            self.handle.abort()
        self._end()

    def lose(self, reason: str) -> None:
        """End it as one of an engine that is lost."""
        if self.handle is not None:
            self.handle.abort()
        self.push(Chunk(finish="error", error=reason, lost="died"))

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._replica.ended(self)
