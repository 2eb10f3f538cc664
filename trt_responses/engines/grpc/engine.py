"""An engine that is served over gRPC, by `trtllm-serve --grpc` in its own image and process.

It may end, freeze and come back while this server goes on. Knows which requests run and whether
the engine takes more; what is said on the wire, the protocol knows.
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
from trt_responses.engines.grpc.discovery import Away, described, found, proven, trouble_of
from trt_responses.engines.grpc.protocol import Fault, Trouble
from trt_responses.engines.grpc.request import Request
from trt_responses.engines.grpc.trtllm import TrtLlmProtocol
from trt_responses.errors import EngineUnavailable, InvalidRequest, StartupError

logger = logging.getLogger(__name__)

CHANNEL = (
    # An answer's last message has all its ids again, with all their alternatives.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # An engine that comes back is found at once, and not after two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


ABORTS, ABORT_AGAIN_S = 5, 0.05
"""How often an engine is asked to end a request that it does not know yet, and how many seconds
apart."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an engine may be silent before it counts as away."""

    start_s: float = 1800.0
    """Seconds until it must answer first; it loads meanwhile."""
    look_s: float = 2.0
    """Seconds between two questions for its health, and between two attempts to find it again."""
    answer_s: float = 5.0
    """Seconds that it has for an answer to such a question."""
    misses: int = 4
    """Questions in a row without an answer after which it is away; time for which this process
    itself was stopped costs one."""
    silent_s: float = 30.0
    """Seconds without an id for anybody, while there are requests, after which it is asked for
    one."""
    token_s: float = 20.0
    """Seconds that it has for this one."""
    idle_s: float = 120.0
    """Seconds without an id after which a request that has begun has failed, while others go on."""


class Address(NamedTuple):
    """The place where an engine is served, and the model that it serves."""

    host: str
    port: int
    model: str

    @property
    def target(self) -> str:
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.target}/{self.model}"


def address_of(text: str) -> Address:
    """The address in a text `host:port/model`, as the setting has it."""
    place, _, model = text.partition("/")
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal() or not model:
        raise StartupError(
            f"{text!r:.100} is no engine over gRPC: give it as host:port/model, where the model is "
            "the name that clients use."
        )
    return Address(host, int(port), model)


class GrpcEngine:
    """The engine that is served at an address, for as long as it takes requests."""

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
        """The ids of requests, unlike those of other front ends of the same engine."""
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
        except (TypeError, ValueError) as error:  # a number that has no place in the message
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
        """Have the engine forget a request whose call is under way; it may not have begun there."""
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
        """Whether a failed call means that the engine is lost: all that fail at once ask once."""
        if fault.status == "UNAVAILABLE":
            self._go_down(f"The engine is away: {fault}.")
            return "died"
        assert self._protocol is not None
        if self._judging is None or self._judging.done():
            self._judging = asyncio.create_task(trouble_of(self._protocol, self._patience.answer_s))
        trouble = await asyncio.shield(self._judging)
        if trouble is None:
            return None
        self._go_down(f"The engine is away: {trouble.reason}.")
        return "died"

    def _go_down(self, reason: str) -> None:
        if self._down is None:
            logger.warning("%s", reason)
            self._down = reason

    def _lose(self, reason: str) -> None:
        """Give up all that runs: it may go on when the engine is back."""
        self._go_down(reason)
        self._fail_all(reason, "died")

    def _fail_all(self, reason: str, lost: Loss | None = None) -> None:
        for request in tuple(self._running):
            request.break_off(reason, lost)

    # --- its life -------------------------------------------------------------------------------

    async def _first_up(self) -> None:
        """Wait until the engine answers, which may load still."""
        loop = asyncio.get_running_loop()
        until_s, told = loop.time() + self._patience.start_s, False
        while True:
            try:
                return await self._up(until_s - loop.time())
            except Away as away:
                if loop.time() >= until_s:
                    raise StartupError(
                        f"it took no request within {self._patience.start_s:g} s: {away}."
                    ) from None
                if not told:
                    logger.info("%s is waited for: %s.", self.address, away)
                    told = True
            await self._sleep(self._patience.look_s)

    async def _up(self, first_answer_s: float) -> None:
        """Find out what the engine can do, ask it for a few ids, and take requests."""
        answer_s, token_s = self._patience.answer_s, self._patience.token_s
        self._protocol = await found(self._channel, answer_s)
        limits = await described(self._protocol, answer_s)
        deadline_s = max(first_answer_s, token_s)
        self._limits = await proven(limits, self._begin, self._find_ignored, deadline_s)
        self._last_progress_ns = self._now_ns()
        self._down = None

    async def _watch(self) -> None:
        """Follow an engine that may go away and come back."""
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
                self._lose(f"The engine is away: {trouble.reason}.")

    async def _up_again(self) -> None:
        try:
            await self._up(self._patience.token_s)
        except (Away, StartupError) as fault:
            self._down = f"The engine is away: {str(fault).removesuffix('.')}."
        else:
            logger.warning("The engine is back.")

    async def _ask_for_an_id(self) -> None:
        """See that an engine that is well makes steps too, where somebody waits for one."""
        now_ns, patience = self._now_ns(), self._patience
        for request in tuple(self._running):
            if request.last_step_ns and now_ns - request.last_step_ns >= patience.idle_s * 1e9:
                request.break_off(
                    f"The engine gave this request nothing for {patience.idle_s:g} s."
                )
        last_ns = self.health().last_progress_ns
        since_ns = max(last_ns, min((r.begun_ns for r in self._running), default=now_ns))
        if now_ns - since_ns < patience.silent_s * 1e9:
            return
        end = await last_chunk(
            lambda sink: self._begin(PROBE_IDS, PROBE, 1, sink), patience.token_s
        )
        if end.finish == "error" and self.health().last_progress_ns <= last_ns:
            self._lose(f"The engine is away: it is well and gives no ids ({end.error}).")


def _channel(address: Address) -> Any:
    """A channel, which connects when it is used."""
    try:
        import grpc
    except ImportError:
        raise StartupError(
            f"{address}: an engine over gRPC needs the package grpcio: install "
            "'trt-responses[grpc]'."
        ) from None
    return grpc.aio.insecure_channel(address.target, CHANNEL)
