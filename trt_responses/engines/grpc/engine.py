"""An engine of another server over gRPC, such as `trtllm-serve --grpc`.

It may die, freeze and come back while this server runs. This module tracks running requests and the
engine's state; the protocol module makes and reads messages.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from trt_responses.engine import Chunk, GenerateOptions, Health, Limits, Loss, Sink
from trt_responses.engines.admission import room
from trt_responses.engines.ask import PROBE, PROBE_IDS, Ask, ignored_options, last_chunk
from trt_responses.engines.grpc.discovery import (
    Away,
    connected_protocol,
    proven_limits,
    read_limits,
    trouble_of,
)
from trt_responses.engines.grpc.protocol import Fault, Trouble
from trt_responses.engines.grpc.request import Request
from trt_responses.engines.grpc.trtllm import TrtLlmProtocol
from trt_responses.errors import EngineUnavailable, InvalidRequest, StartupError

logger = logging.getLogger(__name__)

CHANNEL = (
    # The last message of an answer repeats all its ids, with all alternatives.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Reconnect at once to an engine that comes back, and not after two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


ABORTS, ABORT_AGAIN_S = 5, 0.05
"""Attempts to abort a request that the engine may not have received yet, and their interval."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts after which an engine counts as away."""

    start_s: float = 1800.0
    """Timeout of the first answer, during which the engine may load."""
    look_s: float = 2.0
    """Interval of health checks, and of reconnection attempts."""
    answer_s: float = 5.0
    """Timeout of a health check."""
    misses: int = 4
    """Health checks in a row without an answer until it counts as away; if this process was itself
    suspended, that counts as one."""
    silent_s: float = 30.0
    """Seconds without an id for any request, after which it gets a test request."""
    token_s: float = 20.0
    """Timeout of that test request."""
    idle_s: float = 120.0
    """Seconds without an id after which a started request fails, even if others progress."""


class Address(NamedTuple):
    """The address of an engine, and its model."""

    host: str
    port: int
    model: str

    @property
    def target(self) -> str:
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.target}/{self.model}"


def address_of(text: str) -> Address:
    """The address in a text `host:port/model`."""
    place, _, model = text.partition("/")
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal() or not model:
        raise StartupError(
            f"{text!r:.100} is not a gRPC engine: use host:port/model, with the model name that "
            "clients use."
        )
    return Address(host, int(port), model)


class GrpcEngine:
    """The engine at a gRPC address."""

    def __init__(
        self,
        address: Address,
        patience: Patience | None = None,
        *,
        find_ignored: Callable[[Ask, Sequence[int]], Awaitable[frozenset[str]]] = ignored_options,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.address = address
        self._patience = patience or Patience()
        self._find_ignored = find_ignored
        self._sleep = sleep
        self._now_ns = now_ns
        self._limits = Limits(0, 0)
        self._down: str | None = "The engine has not been started."
        self._last_progress_ns = now_ns()
        self._names = (f"{uuid.uuid4().hex[:12]}-{n}" for n in itertools.count(1))
        """Request ids, distinct from those of other front ends of the same engine."""
        self._running: dict[Request, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._channel: Any = None
        self._protocol: TrtLlmProtocol | None = None
        self._watching: asyncio.Task[None] | None = None
        self._judging: asyncio.Task[Trouble | None] | None = None

    async def start(self) -> None:
        self._channel = _channel(self.address)
        try:
            await self._first_up()
        except StartupError as fault:
            await self.stop(0)
            raise StartupError(f"{self.address}: {fault}") from None
        except BaseException:
            await self.stop(0)
            raise
        self._watching = asyncio.create_task(self._watch())

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Request:
        if self._down is not None:
            raise EngineUnavailable(self._down, retry_after_s=1)
        left = room(len(prompt_ids), options, self._limits)
        return self._begin(prompt_ids, options, left, sink)

    def health(self) -> Health:
        for request in self._running:
            self._last_progress_ns = max(self._last_progress_ns, request.last_step_ns)
        return Health(True, self._down is None, self._last_progress_ns, self._down)

    def limits(self) -> Limits:
        return self._limits

    async def stop(self, deadline_s: float) -> None:
        self._down = "The engine has been stopped."
        owned = [task for task in (self._watching, self._judging) if task is not None]
        for task in owned:
            task.cancel()
        await asyncio.gather(*owned, return_exceptions=True)
        self._fail_all(self._down)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=deadline_s)
        if self._channel is not None:
            await self._channel.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- requests -------------------------------------------------------------------------------

    def _begin(
        self, prompt_ids: Sequence[int], options: GenerateOptions, left: int, sink: Sink
    ) -> Request:
        assert self._protocol is not None
        name = "-".join(filter(None, (options.request_id, next(self._names))))
        now_ns, judge = self._now_ns, self._judge
        request = Request(name, options, left, sink, now_ns, self._over, self._abandon, judge)
        if left <= 0:
            asyncio.get_running_loop().call_soon(request.end, Chunk(finish="length"))
            return request
        try:
            message = self._protocol.request(name, prompt_ids, options, left)
        except (TypeError, ValueError) as error:  # a number out of the message's range
            raise InvalidRequest(f"The request cannot be sent to the engine: {error}") from None
        metadata = tuple(options.trace_headers.items())
        request.call = self._protocol.generate(message, metadata=metadata)
        self._running[request] = None
        self._spawn(request.follow(self._protocol))
        return request

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _abandon(self, request: Request) -> None:
        self._spawn(self._abandoned(request))

    async def _abandoned(self, request: Request) -> None:
        """Abort a request on the engine; its call may not have arrived there yet."""
        import grpc

        assert self._protocol is not None
        answer_s = self._patience.answer_s
        with suppress(grpc.aio.AioRpcError, TimeoutError):
            for _ in range(ABORTS):
                ends = await self._protocol.abort(request.name, answer_s)
                if ends:
                    async with asyncio.timeout(answer_s):
                        await request.call.code()
                if ends or request.call.done():
                    break
                await self._sleep(ABORT_AGAIN_S)
        request.call.cancel()

    def _over(self, request: Request) -> None:
        self._running.pop(request, None)
        self._last_progress_ns = max(self._last_progress_ns, request.last_step_ns)

    async def _judge(self, fault: Fault) -> Loss | None:
        """Whether a failed call means that the engine is lost. Calls that fail together share one
        health check."""
        if fault.status == "UNAVAILABLE":
            self._go_down(f"The engine is unreachable: {fault}.")
            return "died"
        assert self._protocol is not None
        if self._judging is None or self._judging.done():
            self._judging = asyncio.create_task(trouble_of(self._protocol, self._patience.answer_s))
        trouble = await asyncio.shield(self._judging)
        if trouble is None:
            return None
        self._go_down(f"The engine is unreachable: {trouble.reason}.")
        return "died"

    def _go_down(self, reason: str) -> None:
        if self._down is None:
            logger.warning("%s", reason)
            self._down = reason

    def _lose(self, reason: str) -> None:
        """Fail all running requests as lost: they may resume when the engine is back."""
        self._go_down(reason)
        self._fail_all(reason, "died")

    def _fail_all(self, reason: str, lost: Loss | None = None) -> None:
        for request in tuple(self._running):
            request.break_off(reason, lost)

    # --- its life -------------------------------------------------------------------------------

    async def _first_up(self) -> None:
        """Wait until the engine answers; it may still be loading."""
        loop = asyncio.get_running_loop()
        until_s, logged = loop.time() + self._patience.start_s, False
        while True:
            try:
                return await self._up(until_s - loop.time())
            except Away as away:
                if loop.time() >= until_s:
                    raise StartupError(
                        f"it accepted no request within {self._patience.start_s:g} s: {away}."
                    ) from None
                if not logged:
                    logger.info("waiting for the engine %s: %s", self.address, away)
                    logged = True
            await self._sleep(self._patience.look_s)

    async def _up(self, first_answer_s: float) -> None:
        """Discover the engine's limits, test it with a few ids, and accept requests."""
        answer_s, token_s = self._patience.answer_s, self._patience.token_s
        self._protocol = await connected_protocol(self._channel, answer_s)
        limits = await read_limits(self._protocol, answer_s)
        deadline_s = max(first_answer_s, token_s)
        self._limits = await proven_limits(limits, self._begin, self._find_ignored, deadline_s)
        self._last_progress_ns = self._now_ns()
        self._down = None

    async def _watch(self) -> None:
        """Watch the engine, which may become unreachable and come back."""
        misses = 0
        while True:
            await self._sleep(self._patience.look_s)
            if self._down is not None:
                misses = 0
                await self._up_again()
                continue
            assert self._protocol is not None
            before_ns = self.health().last_progress_ns
            trouble = await trouble_of(self._protocol, self._patience.answer_s)
            moved = self.health().last_progress_ns > before_ns
            silent = trouble is not None and trouble.status == "DEADLINE_EXCEEDED"
            misses = misses + 1 if silent and not moved else 0
            if trouble is None:
                await self._ask_for_an_id()
            elif not silent or misses >= self._patience.misses:
                self._lose(f"The engine is unreachable: {trouble.reason}.")

    async def _up_again(self) -> None:
        try:
            await self._up(self._patience.token_s)
        except (Away, StartupError) as fault:
            self._down = f"The engine is unreachable: {str(fault).removesuffix('.')}."
        else:
            logger.warning("reconnected to the engine %s", self.address)

    async def _ask_for_an_id(self) -> None:
        """Check that a healthy engine also makes progress while requests wait."""
        now_ns, patience = self._now_ns(), self._patience
        for request in tuple(self._running):
            if request.last_step_ns and now_ns - request.last_step_ns >= patience.idle_s * 1e9:
                request.break_off(
                    f"The engine returned nothing for this request for {patience.idle_s:g} s."
                )
        last_ns = self.health().last_progress_ns
        since_ns = max(last_ns, min((r.begun_ns for r in self._running), default=now_ns))
        if now_ns - since_ns < patience.silent_s * 1e9:
            return
        end = await last_chunk(
            lambda sink: self._begin(PROBE_IDS, PROBE, 1, sink), patience.token_s
        )
        if end.finish == "error" and self.health().last_progress_ns <= last_ns:
            self._lose(f"The engine reports healthy and returns no ids ({end.error}).")


def _channel(address: Address) -> Any:
    """A channel, which connects on first use."""
    try:
        import grpc
    except ImportError:
        raise StartupError(
            f"{address}: gRPC needs the package grpcio: pip install 'trt-responses[grpc]'."
        ) from None
    return grpc.aio.insecure_channel(address.target, CHANNEL)
