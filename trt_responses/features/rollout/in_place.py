"""Puts a version into the place of the served one, under its runs, where memory does not hold both.

    runs pause ──> stop the one ──> start the other ──> gate ──> point ──> runs go on

Whatever fails brings the version before back, and the runs go on with that. Knows builds and the
engine's seam; knows no file and no HTTP.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from trt_responses.errors import ApiError, StartupError
from trt_responses.features.rollout.acts import Pause
from trt_responses.features.rollout.loaded import Loaded
from trt_responses.features.rollout.measures import GateReport, LoadRefused
from trt_responses.features.rollout.versions import Versions

Start = Callable[[], Awaitable[Loaded]]
"""Loads a version and starts its engine."""

logger = logging.getLogger(__name__)


class InPlace:
    """One exchange in the promoted version's place."""

    def __init__(self, versions: Versions, label: str, start: Start, start_again: Start) -> None:
        """`label` names the version to come, which `start` starts; `start_again` brings the one
        before back."""
        self._versions = versions
        self._seat = versions.promoted
        self._label = label
        self._before = self._seat.version.label
        self._start = start
        self._start_again = start_again

    async def exchange(
        self,
        pause: Pause,
        compared: Callable[[Loaded], Awaitable[GateReport | None]],
        point: Callable[[], Awaitable[None]],
    ) -> tuple[GateReport | None, int]:
        """What was measured, and how many runs have paused. Raises a `LoadRefused` when the version
        before is back."""
        self._seat.leave(f"{self._label} is loaded in the place of {self._before}")
        paused = await pause(self._seat)
        logger.info("pausing %d responses until %s is loaded", paused, self._label)
        loaded: Loaded | None = None
        try:
            await self._seat.stop()
            loaded = await self._start()
            report = await compared(loaded)
            if report is not None and report.refused is not None:
                raise LoadRefused(report.refused, report)
            await point()
        except Exception as fault:
            if loaded is not None:
                await self._stopped(loaded)
            raise await self._back(fault) from None
        except BaseException:  # the server ends, and so do the runs
            if loaded is not None:
                await loaded.stop()
            raise
        self._versions.put_in_place(loaded)
        return report, paused

    async def _back(self, fault: Exception) -> LoadRefused:
        """The refusal, when the version before is in its place again."""
        if isinstance(fault, LoadRefused):
            refused = fault
        else:
            if not isinstance(fault, StartupError | ApiError):
                logger.exception("failed to load %s", self._label, exc_info=fault)
            refused = LoadRefused(str(fault).removesuffix(".") or type(fault).__name__)
        try:
            self._versions.put_in_place(await self._start_again())
            logger.warning("restarted %s", self._before)
        except Exception as second:
            why = f"{self._before} could not be started again: {str(second).removesuffix('.')}"
            self._seat.lose(why)
            refused.message = f"{refused.message}; and {why}"
        return refused

    async def _stopped(self, loaded: Loaded) -> None:
        try:
            await loaded.stop()
        except Exception:
            logger.exception("failed to shut down %s cleanly", self._label)
