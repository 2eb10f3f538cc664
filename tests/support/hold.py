"""How long the event loop is held, in the process's CPU time: a busy machine does not lengthen it.

A task beside wants the loop at every turn, as a stream does. CPU time of threads counts too, for a
thread that computes without giving up the interpreter holds the loop as well.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support.turns import turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


REFERENCE_S = 0.006
"""What the reference takes on the quiet machine on which the bounds of holds were set."""


def slowness() -> float:
    """How much longer work takes now than there; at least 1."""
    return max(1.0, min(_reference_s() for _ in range(3)) / REFERENCE_S)


def _reference_s() -> float:
    begun = time.process_time()
    dict((f"k{n}", n) for n in range(40_000))  # noqa: C402 - what a parser does, one by one
    return time.process_time() - begun


class Hold:
    """The longest time between two turns of the task beside, and all of them together."""

    def __init__(self) -> None:
        self.longest_s = self.spent_s = 0.0
        self.turns = 0

    async def _watch(self) -> None:
        last = time.process_time()
        while True:
            await turn()
            now = time.process_time()
            self.longest_s = max(self.longest_s, now - last)
            self.spent_s += now - last
            self.turns += 1
            last = now


@asynccontextmanager
async def watched() -> AsyncIterator[Hold]:
    hold = Hold()
    task = asyncio.ensure_future(hold._watch())
    await turn()
    try:
        yield hold
    finally:
        await turn()
        task.cancel()
