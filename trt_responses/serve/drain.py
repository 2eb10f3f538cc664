"""How a server's work comes to its end: it accepts requests for a while, then waits for
the running ones."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.health.lifecycle import Lifecycle
    from trt_responses.run.runs import Runs

logger = logging.getLogger(__name__)

LOOK_S = 0.02
"""Seconds between two looks at whether all is done."""
HURRY_S = 1.0
"""Seconds that running responses still get after a second signal."""


class Drain:
    """One server's drain, which is begun once and may be hurried."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        runs: Runs,
        *,
        drain_s: float,
        end_connections: Callable[[], None],
    ) -> None:
        """`end_connections` closes connections that outlive a response, each behind the response it
        makes."""
        self._end_connections = end_connections
        self._lifecycle = lifecycle
        self._runs = runs
        self._drain_s = drain_s

    def begin(self, linger_s: float) -> None:
        """Begin the linger; a second call ends it. It may be called by a signal's handler, in the
        middle of anything, and so does no more than note the time."""
        if self._lifecycle.draining:
            self._drain_s = min(self._drain_s, HURRY_S)
            linger_s = 0.0
        self._lifecycle.drain(linger_s)

    async def finish(self) -> None:
        """Wait until nothing runs any more, and every end is stored and sent."""
        logger.warning(
            "draining: accepting requests for %.3g s, then up to %.3g s for running ones",
            self._lifecycle.linger_left_s,
            self._drain_s,
        )
        await _until(lambda: not self._lifecycle.linger_left_s)
        self._end_connections()
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        await _until(lambda: not len(self._runs) or now_s() >= began_s + self._drain_s)
        if left := len(self._runs):
            logger.warning("timeout: drain ended with %d running responses", left)
        while len(self._runs):  # one whose prompt is still being read begins and fails later
            self._runs.shut_down()
            await asyncio.sleep(LOOK_S)


async def _until(claim: Callable[[], bool]) -> None:
    while not claim():  # noqa: ASYNC110  # a signal's handler, which can wake no task, may change it
        await asyncio.sleep(LOOK_S)
