"""Work that goes on beside other work, and ends with it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine


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
