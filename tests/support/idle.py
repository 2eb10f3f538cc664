"""What an event loop still has to do, and how long others wait for their turn."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def left_to_do() -> list[Any]:
    """The callbacks, timers and files that wake the loop, but for those of the task that asks: a
    loop without any uses no processor at all, however long it waits."""
    loop: Any = asyncio.get_running_loop()
    timers = [timer for timer in loop._scheduled if not timer.cancelled()]
    own = loop._ssock.fileno()  # by which other threads wake it
    files = [key.fileobj for key in loop._selector.get_map().values() if key.fd != own]
    return [*loop._ready, *timers, *files]


async def idle(turns: int = 1000) -> bool:
    """Whether nothing is left to do, after that many turns at the most."""
    for _ in range(turns):
        if not left_to_do():
            return True
        await asyncio.sleep(0)
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
            await asyncio.sleep(0)
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
