"""Work that goes on beside other work, and ends with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

QUIET_S = 50e-6
"""A turn of the loop that is shorter did no other work: an empty one takes some 10 µs."""
MOST_TURNS = 32
"""A streamed token takes some ten turns of the loop from an engine's socket to the client's."""
MOST_S = 0.005
"""What other work gets between two slices: on a busy loop 32 turns may take a third of a second."""


async def give_way() -> None:
    """Let other work on the loop go on until all of it waits: called between two slices of a long
    computation, for a stream that meets a slice at each turn stands still for all of them."""
    first_s = before_s = time.perf_counter()
    for _ in range(MOST_TURNS):
        await asyncio.sleep(0)
        now_s = time.perf_counter()
        if now_s - before_s < QUIET_S or now_s - first_s > MOST_S:
            break
        before_s = now_s


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, object]) -> AsyncIterator[asyncio.Task[object]]:
    """A task that does this work for as long as the context lasts. At the context's end it is
    cancelled and its end is waited for; what it raises is for those who ask the task."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))
