"""Judges whether an engine in this process is alive, by its silence and by probes.

In current versions a dead worker leaves its requests waiting for ever and reports nothing, so only
steps count as life. Clocks and counts only: no requests and no package.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trt_responses.engine import Health

logger = logging.getLogger(__name__)

LOOKS_PER_PROBE = 15


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts after which an engine is probed, and given up."""

    first_answer_s: float = 600.0
    """Timeout of the first answer after a start, which may still compile kernels."""
    idle_timeout_s: float = 120.0
    """Seconds without a step after which a started request fails."""
    queue_timeout_s: float = 900.0
    """Seconds that a request may wait for its first step while others progress."""
    probe_timeout_s: float = 8.0
    """Timeout of a probe, which is one token."""
    probe_every_s: float = 15.0
    """Seconds of silence before a probe, so that a silent death is detected within a minute."""
    first_probe_s: float = 3.0
    """The same while a request waits. The next call raises a death that the package reports, so it
    is known within ten seconds. An unanswered early probe does not count."""
    max_failures: int = 3
    """Failed probes in a row after which the engine counts as dead."""


class Liveness:
    """Watches an engine. `ask` probes it and returns None or the reason of a failure;
    `is_waited_for` returns whether there are requests; `fail_idle` fails those that waited too
    long; `on_death` receives the reason, once."""

    def __init__(
        self,
        patience: Patience,
        *,
        ask: Callable[[], Awaitable[str | None]],
        is_waited_for: Callable[[], bool],
        fail_idle: Callable[[], None],
        on_death: Callable[[str], None],
        sleep: Callable[[float], Awaitable[None]],
        now_ns: Callable[[], int],
    ) -> None:
        self.down: str | None = "The engine has not been started."
        self.alive = True
        self.last_progress_ns = now_ns()
        self._patience = patience
        self._ask = ask
        self._is_waited_for = is_waited_for
        self._fail_idle = fail_idle
        self._on_death = on_death
        self._sleep = sleep
        self._now_ns = now_ns
        self._failures = 0
        self._probing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._up()
        self._watching = asyncio.create_task(self._watch())

    async def stop(self, reason: str) -> None:
        self.down = reason
        owned = [task for task in (self._watching, self._probing) if task is not None]
        for task in owned:
            task.cancel()
        await asyncio.gather(*owned, return_exceptions=True)

    def health(self) -> Health:
        return Health(self.alive, self.down is None, self.last_progress_ns, self.down)

    def progress(self, at_ns: int) -> None:
        self.last_progress_ns = max(self.last_progress_ns, at_ns)

    def answered(self) -> None:
        """Note that a request was answered, which resets failed probes."""
        self._failures = 0

    def probe(self) -> asyncio.Task[None]:
        """The running probe, or a new one."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe())
        return self._probing

    def die(self, reason: str) -> None:
        if self.alive:
            self.alive = False
            self.down = reason
            self._on_death(reason)

    async def _watch(self) -> None:
        patience = self._patience
        while self.alive:
            await self._sleep(patience.probe_every_s / LOOKS_PER_PROBE)
            self._fail_idle()
            bound_s = patience.first_probe_s if self._is_waited_for() else patience.probe_every_s
            if self._silent_s() >= bound_s or self._failures:
                await self.probe()

    async def _probe(self) -> None:
        before, deadline_s = self.last_progress_ns, self._patience.probe_timeout_s
        early = self._silent_s() < self._patience.probe_every_s
        try:
            async with asyncio.timeout(deadline_s):
                why = await self._ask()
        except TimeoutError:
            why = f"no token within {deadline_s:g} s"
        else:
            early = False
        if not self.alive:
            return
        if why is None or self.last_progress_ns > before:  # a full batch makes a probe wait
            self._up()
        elif not early:
            self._failed(why)

    def _silent_s(self) -> float:
        return (self._now_ns() - self.last_progress_ns) / 1e9

    def _up(self) -> None:
        self.down = None
        self._failures = 0
        self.progress(self._now_ns())

    def _failed(self, why: str) -> None:
        self._failures += 1
        self.down = f"The engine does not answer ({why}), {self._failures} times in a row."
        logger.warning("%s", self.down)
        if self._failures >= self._patience.max_failures:
            self.die(self.down)
