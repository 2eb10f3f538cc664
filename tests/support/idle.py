"""What an event loop still has to do, and how long others wait for their turn."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.support.turns import turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def left_to_do() -> list[Any]:
    """The callbacks, timers and files that wake the loop, but for those of the task that asks: a
    loop without any uses no processor at all, however long it waits."""
    loop: Any = asyncio.get_running_loop()
    # private: a loop has no list of its work
    ready, scheduled, own = loop._ready, loop._scheduled, loop._ssock.fileno()
    timers = [timer for timer in scheduled if not timer.cancelled()]
    return [*ready, *timers, *(watched_files() - {own})]  # by its own, other threads wake it


def watched_files() -> set[int]:
    """The file descriptors that wake the loop."""
    loop: Any = asyncio.get_running_loop()
    return {*loop._selector.get_map()}  # private: a loop has no list of its files


async def idle(turns: int = 1000) -> bool:
    """Whether nothing is left to do, after that many turns at the most."""
    for _ in range(turns):
        if not left_to_do():
            return True
        await turn()
    return False


class Turns:
    """What another task on the loop sees."""

    def __init__(self) -> None:
        self.count = 0
        self.longest_s = 0.0
        """Of this thread's processor time, so that a busy machine does not count."""

    async def take(self) -> None:
        before = time.thread_time()
        while True:
            await turn()
            now = time.thread_time()
            self.longest_s = max(self.longest_s, now - before)
            self.count += 1
            before = now


@asynccontextmanager
async def beside() -> AsyncIterator[Turns]:
    """Another task, that takes every turn it gets."""
    turns = Turns()
    task = asyncio.create_task(turns.take())
    try:
        yield turns
    finally:
        task.cancel()
        await asyncio.wait((task,))
