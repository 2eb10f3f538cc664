"""The clock of a scripted engine: it steps by itself while there is work, or by a test's calls.

The event loop only: no requests and no scripts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from tests.support.turns import turn


class StepClock:
    """Calls the engine's `advance` once for each step."""

    def __init__(self, mode: Literal["free", "manual"] = "free", *, settle_turns: int = 16) -> None:
        self.mode = mode
        self.steps = 0
        self._settle_turns = settle_turns
        self._advance: Callable[[], bool] = bool  # nothing to do
        self._armed = False
        self._soon: Callable[..., object] = bool  # nowhere, until it is woken
        self._again = self._tick  # bound once, not for each step

    @classmethod
    def free(cls) -> StepClock:
        return cls("free")

    @classmethod
    def manual(cls, *, settle_turns: int = 16) -> StepClock:
        return cls("manual", settle_turns=settle_turns)

    def drive(self, advance: Callable[[], bool]) -> None:
        """Set `advance`, which makes one step and returns whether there is more to do."""
        self._advance = advance
        self._armed = False

    def wake(self) -> None:
        """Note that there is work. A free clock steps from the loop's next turn; a manual one
        waits."""
        if self.mode == "free" and not self._armed:
            self._armed = True
            self._soon = asyncio.get_running_loop().call_soon
            self._soon(self._tick)

    async def step(self, count: int = 1) -> None:
        """Make exactly `count` steps; after each, let the loop run so that consumers react."""
        for _ in range(count):
            self.step_alone()
            await turn(self._settle_turns)

    def _tick(self) -> None:
        """Make a step, and schedule the next one if there is more work."""
        self.steps += 1  # `step_alone`, written out
        more = True
        try:
            advance = self._advance  # called as a local: as an attribute it is looked up twice
            more = advance()
        finally:  # one sink that raises must not stop the others
            if more:
                soon = self._soon
                soon(self._again)
            else:
                self._armed = False

    def step_alone(self) -> bool:
        """Make a step without running other tasks. Returns whether there is more work."""
        self.steps += 1
        return self._advance()
