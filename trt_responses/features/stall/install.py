"""Whether the engine makes steps while it has work, and what is done when it makes none.

An engine that is not ready mends itself: the embedded one, for instance, restarts its child. That
is no stall, and its responses wait. An engine that is ready and makes no step fails its responses,
and after several such failures in a row the server is beyond help. Knows the engine's seam and
a clock; knows no HTTP.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from trt_responses.engine import Health
from trt_responses.errors import ApiError, EngineLost
from trt_responses.health.lifecycle import Lifecycle
from trt_responses.run.facts import RunFacts
from trt_responses.setup.server import Server

logger = logging.getLogger(__name__)

GIVE_UP = 3
"""The number of `stall_s` without a step after which the responses fail: an engine that mends
itself has done so by then."""
MAX_FAILURES = 3
"""The most failures in a row, with no response between them that ended well."""


class StallWatch:
    """Looks at the engine while it lives. A listener of runs: one that ends well makes up for the
    failures before it."""

    def __init__(
        self,
        health: Callable[[], Health],
        has_work: Callable[[], bool],
        lifecycle: Lifecycle,
        *,
        fail_begun: Callable[[ApiError], None],
        stall_s: float,
        pause_s: float = 0.0,
        clock_ns: Callable[[], int],
    ) -> None:
        """`has_work` says whether the engine has: runs that wait until it is back are none.
        `pause_s` bounds the wait of runs that the engine itself still holds."""
        self._health = health
        self._has_work = has_work
        self._fail_begun = fail_begun
        self._lifecycle = lifecycle
        self._stall_s = stall_s
        self._clock_ns = clock_ns
        self._away_s = max(pause_s, GIVE_UP * stall_s)
        self._since_ns = clock_ns()
        """The time since which it has had work without a step, or was given up last."""
        self._here_ns = clock_ns()
        """The last time at which it was ready, or had no work."""
        self._failures = 0

    def still_s(self, last_step_ns: int) -> float:
        """Seconds for which the engine, whose last step this was, has had work and made none."""
        if not self._has_work():
            return 0.0
        last_ns = max(self._since_ns, last_step_ns)
        return max(0, self._clock_ns() - last_ns) / 1e9

    def reason(self, last_step_ns: int) -> str | None:
        """The words for a stall; None while the engine has not stood still for too long."""
        still_s = self.still_s(last_step_ns)
        if still_s < self._stall_s:
            return None
        return f"the engine has work and has made no step for {still_s:.0f} s"

    def look(self) -> None:
        health, now_ns, has_work = self._health(), self._clock_ns(), self._has_work()
        if health.ready or not has_work:
            self._here_ns = now_ns
        if not health.ready or not has_work:
            self._since_ns = now_ns
        if now_ns - self._here_ns >= self._away_s * 1e9:
            why = f"The engine was away for more than {self._away_s:g} s."
            self._fail_begun(EngineLost(why, retry_after_s=5))
        elif self.still_s(health.last_progress_ns) >= GIVE_UP * self._stall_s:
            self._give_up()

    def run_ended(self, facts: RunFacts) -> None:
        if facts.response.status in ("completed", "incomplete"):
            self._failures = 0

    def _give_up(self) -> None:
        self._failures += 1
        self._since_ns = self._clock_ns()
        why = f"The engine has made no step for {GIVE_UP * self._stall_s:g} s"
        logger.error("failing running responses: %s stalls_in_a_row=%d", why, self._failures)
        self._fail_begun(EngineLost(f"{why}.", retry_after_s=5))
        if self._failures >= MAX_FAILURES:
            self._lifecycle.fail(f"{why}, {self._failures} times in a row")


def install(server: Server) -> None:
    watch = StallWatch(
        lambda: server.parts.engine.health(),
        lambda: server.parts.admission.running > server.paused,
        server.lifecycle,
        fail_begun=lambda error: server.runs.fail_begun(error),
        stall_s=server.settings.stall_s,
        pause_s=server.settings.engine_pause_s,
        clock_ns=time.monotonic_ns,
    )
    server.stall = watch.reason
    server.listeners.append(watch)
    server.each_look.append(watch.look)
