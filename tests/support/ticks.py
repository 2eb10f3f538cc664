"""Time that passes when a test says so: a `sleep` to hand in, and a clock that agrees with it."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from tests.support.turns import turn

SETTLE_TURNS = 60
"""Turns of the loop after each sleeper is woken, for what follows from it."""


class Ticks:
    """`sleep` waits until `pass_` has let enough time pass; `now` is the time."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), woken))
        await woken

    async def pass_(self, seconds: float) -> None:
        """Let time pass, and let each task that wakes meanwhile run."""
        await settled()
        until = self.now + seconds
        while self._sleepers and self._sleepers[0][0] <= until:
            self.now, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
            await settled()
        self.now = until


async def settled(turns: int = SETTLE_TURNS) -> None:
    await turn(turns)
