"""Holds runs whose engine went away, and lets them go on when it is back.

A run that may have killed the engine resumes once, and not a second time: those that it had given
nothing yet, for a prompt kills at its first step if it does; or all, if there was none. Knows the
engine's seam and a clock; knows no prompt and no id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

from trt_responses.engine import Engine, Loss
from trt_responses.errors import EngineLost
from trt_responses.features.recovery.rest import rest_of
from trt_responses.language.steering import Segment
from trt_responses.run.ending import End
from trt_responses.run.generation import Generation

logger = logging.getLogger(__name__)

LOOK_S = 0.05
"""Seconds between two looks for the engine. By then, all runs that it left have come here."""
PAST_TOKENS = 32
"""A run that got so many tokens further is not to blame for earlier deaths."""
MAX_STUCK = 3
"""The most pauses in a row that bring no token between them."""


@dataclass(slots=True, eq=False)
class PausedRun:
    """The pauses of one run."""

    kept: Sequence[int]
    """Its ids, which grow."""
    tokens: int = 0
    """The number of tokens it had at the last pause."""
    silent: bool = False
    """Whether the engine had given it nothing since the pause before."""
    blamed: int = 0
    """Deaths of the engine that it may have caused."""
    stuck: int = 0

    @property
    def has_token(self) -> bool:
        """Whether it has a token since the last pause."""
        return len(self.kept) > self.tokens


class Recovery:
    """The pauses of all runs over one engine. `wait_s` bounds each."""

    def __init__(
        self,
        engine: Engine,
        *,
        wait_s: float,
        clock_s: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.paused = 0
        """The number of runs that wait for the engine now."""
        self._engine = engine
        self._wait_s = wait_s
        self._clock_s = clock_s
        self._sleep = sleep
        self._unjudged: list[PausedRun] = []
        self._unheard: set[PausedRun] = set()
        """Runs that went on and have no token yet."""
        self._runs: WeakKeyDictionary[Generation, PausedRun] = WeakKeyDictionary()
        self._whole: Recovery | None = None

    def over(self, engine: Engine) -> Recovery:
        other = Recovery(engine, wait_s=self._wait_s, clock_s=self._clock_s, sleep=self._sleep)
        other._whole = self
        return other

    async def resume(self, generation: Generation, segment: Segment, end: End) -> End:
        run = self._runs.setdefault(generation, PausedRun(generation.reader.kept))
        try:
            return await rest_of(generation, segment, end, partial(self._wait, run, generation))
        finally:
            self._unheard.discard(run)

    async def _wait(
        self, run: PausedRun, generation: Generation, loss: Loss, silent: bool
    ) -> End | None:
        """Wait for a run's engine. Returns the run's end if it cannot go on. A verdict breaks the
        wait off."""
        tokens, response_id = len(run.kept), generation.options.request_id
        self._unheard.discard(run)
        logger.info("pausing %s until the engine is back: loss=%s", response_id, loss)
        try:
            await generation.wait_for(self._back(run, loss, silent=silent, tokens=tokens))
        except EngineLost as error:
            return End("failed", error)
        if generation.verdict is None:
            logger.info("resuming %s after %d tokens (engine back)", response_id, tokens)
        return generation.verdict

    async def _back(self, run: PausedRun, loss: Loss, *, silent: bool, tokens: int) -> None:
        run.stuck = 0 if tokens > run.tokens else run.stuck + 1
        if tokens - run.tokens >= PAST_TOKENS:
            run.blamed = 0
        run.tokens, run.silent = tokens, silent
        if loss == "died":
            self._unjudged.append(run)
        self._count(1)
        try:
            await self._turn(run, alone=silent and loss == "died")
        finally:
            self._count(-1)
            if run in self._unjudged:
                self._unjudged.remove(run)
        self._unheard.add(run)

    def _count(self, more: int) -> None:
        self.paused += more
        if self._whole is not None:
            self._whole._count(more)

    async def _turn(self, run: PausedRun, *, alone: bool) -> None:
        """Wait for a run's turn. With `alone`, wait until no other run's first token is awaited:
        should the engine die again, its cause is known."""
        until_s = self._clock_s() + self._wait_s
        while True:
            await self._ready(until_s)
            self._judge()
            if run.blamed > 1:
                raise EngineLost(
                    "The engine died twice while it was at work on this response, which is not "
                    "tried again.",
                    headers={"x-should-retry": "false"},
                )
            if run.stuck > MAX_STUCK:
                raise EngineLost("The engine came back and went away again and again.")
            self._unheard = {run for run in self._unheard if not run.has_token}
            if not (alone and self._unheard):
                return

    async def _ready(self, until_s: float) -> None:
        while True:
            await self._sleep(LOOK_S)
            health = self._engine.health()
            if health.ready:
                return
            reason = (health.reason or "it gave no reason").removesuffix(".")
            if not health.alive:
                raise EngineLost(f"The engine is lost: {reason}.")
            if self._clock_s() >= until_s:
                raise EngineLost(
                    f"The engine was away for more than {self._wait_s:g} s: {reason}.",
                    retry_after_s=5,
                )

    def _judge(self) -> None:
        """Judge, once, all runs that one death has left."""
        left, self._unjudged = self._unjudged, []
        for suspect in [run for run in left if run.silent] or left:
            suspect.blamed += 1
