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


async def give_way() -> None:
    """Let other work on the loop go on until all of it waits: called between two slices of a long
    computation, for a stream that meets a slice at each turn stands still for all of them."""
    for _ in range(MOST_TURNS):
        begun_s = time.perf_counter()
        await asyncio.sleep(0)
        if time.perf_counter() - begun_s < QUIET_S:
            break


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
