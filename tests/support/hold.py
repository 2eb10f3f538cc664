"""How long the event loop is held, in the process's CPU time: a busy machine does not lengthen it.

A task beside wants the loop at every turn, as a stream does. CPU time of threads counts too, for a
thread that computes without giving up the interpreter holds the loop as well.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Hold:
    """The longest time between two turns of the task beside, and all of them together."""

    def __init__(self) -> None:
        self.longest_s = self.spent_s = 0.0
        self.turns = 0

    async def _watch(self) -> None:
        last = time.process_time()
        while True:
            await asyncio.sleep(0)
            now = time.process_time()
            self.longest_s = max(self.longest_s, now - last)
            self.spent_s += now - last
            self.turns += 1
            last = now


@asynccontextmanager
async def watched() -> AsyncIterator[Hold]:
    hold = Hold()
    task = asyncio.ensure_future(hold._watch())
    await asyncio.sleep(0)
    try:
        yield hold
    finally:
        await asyncio.sleep(0)
        task.cancel()
