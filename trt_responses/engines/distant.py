"""The life of an engine behind another server, whatever protocol it speaks: it may die, freeze and
come back while this server runs.

Running requests and health only: a subclass sends requests and reads the server's limits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from trt_responses.engine import (
    Chunk,
    GenerateOptions,
    Guide,
    GuideKind,
    Handle,
    Health,
    Limits,
    Loss,
    Sink,
)
from trt_responses.engines.admission import room
from trt_responses.engines.ask import (
    CANARY,
    PROBE,
    PROBE_IDS,
    Ask,
    ignored_options,
    last_chunk,
)
from trt_responses.errors import EngineUnavailable, StartupError

logger = logging.getLogger(__name__)


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


GUIDE_CANARIES: Mapping[GuideKind, Guide] = {
    "json_schema": Guide("json_schema", '{"const": "yes, déjà"}'),
    "regex": Guide("regex", "yes"),
    "lark": Guide("lark", 'start: "yes"'),
}
"""A test guide of each kind for a new engine. xgrammar does not support the third."""


class Away(Exception):
    """The engine does not answer, or accepts no requests."""


SILENT = "DEADLINE_EXCEEDED"
"""The status of a health check without an answer, by gRPC's name."""


class Trouble(NamedTuple):
    """Why an engine accepts no requests, and the status of the call if it failed."""

    reason: str
    status: str = ""


class Running(Handle, Protocol):
    """A request that an engine tracks."""

    begun_ns: int
    last_step_ns: int
    """The time of the last message, or 0."""

    def break_off(self, reason: str, lost: Loss | None = None) -> None:
        """End the request with an error."""
        ...


class DistantEngine(ABC):
    """An engine at an address."""

    about = ""
    """The name, version and model of the server there, once it has answered."""

    def __init__(
        self,
        address: object,
        patience: Patience | None = None,
        *,
        find_ignored: Callable[[Ask, Sequence[int]], Awaitable[frozenset[str]]] = ignored_options,
        probe: Sequence[int] = PROBE_IDS,
    ) -> None:
        """`probe`: the prompt of small requests."""
        self._probe = probe
        self.address = address
        self._patience = patience or Patience()
        self._find_ignored = find_ignored
        self._limits = Limits(0, 0)
        self._down: str | None = "The engine has not been started."
        self._last_progress_ns = time.monotonic_ns()
        self._running: dict[Running, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._judging: asyncio.Task[Trouble | None] | None = None

    @abstractmethod
    def _begin(
        self, prompt_ids: Sequence[int], options: GenerateOptions, left: int, sink: Sink
    ) -> Handle:
        """Start a request that was admitted, with a maximum number of ids."""

    @abstractmethod
    async def _describe(self) -> Limits:
        """The limits that the server reports. Raises an `Away` if it accepts no requests, and a
        `StartupError` if it is no server of this kind."""

    @abstractmethod
    async def _trouble(self) -> Trouble | None:
        """Why the engine accepts no requests; None if it does."""

    @abstractmethod
    async def _close(self) -> None:
        """Close the connections of requests that have ended here."""

    async def start(self) -> None:
        try:
            await self._first_up()
        except StartupError as fault:
            await self.stop(0)
            raise StartupError(f"{self.address}: {fault}") from None
        except BaseException:
            await self.stop(0)
            raise
        self._watching = asyncio.create_task(self._watch())

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
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
        await self._close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def over(self, request: Running) -> None:
        """Forget a request, before its last push."""
        self._running.pop(request, None)
        self._last_progress_ns = max(self._last_progress_ns, request.last_step_ns)

    async def _judge(self) -> Loss | None:
        """Whether the engine of a request that failed is lost, as it is if it accepts no requests.
        Requests that fail together share one check."""
        if self._judging is None or self._judging.done():
            self._judging = asyncio.create_task(self._trouble())
        if (trouble := await asyncio.shield(self._judging)) is None:
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
            await asyncio.sleep(self._patience.look_s)

    async def _up(self, first_answer_s: float) -> None:
        """Discover the engine's limits, test it with a few ids, and accept requests."""
        limits = await self._describe()
        deadline_s = max(first_answer_s, self._patience.token_s)
        self._limits = await self._proven(limits, deadline_s)
        self._last_progress_ns = time.monotonic_ns()
        self._down = None

    async def _watch(self) -> None:
        """Watch the engine, which may become unreachable and come back."""
        misses = 0
        while True:
            await asyncio.sleep(self._patience.look_s)
            if self._down is not None:
                misses = 0
                await self._up_again()
                continue
            before_ns = self.health().last_progress_ns
            trouble = await self._trouble()
            moved = self.health().last_progress_ns > before_ns
            silent = trouble is not None and trouble.status == SILENT
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
        now_ns, patience = time.monotonic_ns(), self._patience
        for request in tuple(self._running):
            if request.last_step_ns and now_ns - request.last_step_ns >= patience.idle_s * 1e9:
                request.break_off(
                    f"The engine returned nothing for this request for {patience.idle_s:g} s."
                )
        last_ns = self.health().last_progress_ns
        since_ns = max(last_ns, min((r.begun_ns for r in self._running), default=now_ns))
        if now_ns - since_ns < patience.silent_s * 1e9:
            return
        end = await self._ended(self._probe, PROBE, patience.token_s)
        if end.finish == "error" and self.health().last_progress_ns <= last_ns:
            self._lose(f"The engine reports healthy and returns no ids ({end.error}).")

    async def _proven(self, limits: Limits, deadline_s: float) -> Limits:
        """The limits with working guides only, and with the options that the engine ignores. Raises
        an `Away` if the engine returns no token."""

        async def last(options: GenerateOptions) -> Chunk:
            end = await self._ended(self._probe, options, deadline_s)
            if end.lost is not None:
                raise Away(end.error)
            return end

        async def answer(prompt_ids: Sequence[int], options: GenerateOptions) -> Sequence[int]:
            end = await self._ended(prompt_ids, options, deadline_s)
            return () if end.error else end.token_ids

        guides = {
            kind: ends
            for kind, ends in limits.guides.items()
            if (await last(replace(CANARY, guide=GUIDE_CANARIES[kind]))).stop_id in ends
        }
        if limits.guides and not guides:
            logger.warning("guides do not work on this engine: refusing requests with one")
        if (end := await last(PROBE)).finish == "error":
            raise Away(f"it returns no token: {end.error}")
        ignored = await self._find_ignored(answer, self._probe)
        if ignored:
            logger.warning("this engine ignores %s", ", ".join(sorted(ignored)))
        return replace(limits, guides=guides, ignores=limits.ignores | ignored)

    async def _ended(
        self, prompt_ids: Sequence[int], options: GenerateOptions, deadline_s: float
    ) -> Chunk:
        """The last chunk of one of the server's own small requests."""
        return await last_chunk(
            lambda sink: self._begin(prompt_ids, options, options.max_tokens, sink), deadline_s
        )
