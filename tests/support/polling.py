"""Polls other processes, which cannot wake a test: now and then, with a
deadline. Tests that wait for a process use these, and no sleep of their own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LOOK_S = 0.02
PATIENCE_S = 300.0
"""Seconds after which a test hangs rather than waits."""

T = TypeVar("T")


async def polled(look: Callable[[], Awaitable[T | None]]) -> T:
    """What a look gives in the end, after looks that gave None."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await look()) is None:  # noqa: ASYNC110  # nothing wakes it
            await asyncio.sleep(LOOK_S)  # slept: another process has no turns of this loop
        return found


async def until_seen(claim: Callable[[], bool]) -> None:
    """Wait until the claim holds. It raises when that takes too long, so that a test may end with
    it."""

    async def look() -> bool | None:
        return claim() or None

    await polled(look)
