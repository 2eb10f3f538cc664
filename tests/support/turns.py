"""Turns of the event loop: what a test waits for when nothing signals that work is done."""

from __future__ import annotations

import asyncio


async def turn(count: int = 1) -> None:
    """Let every other task that is ready run; `count` times."""
    for _ in range(count):
        await asyncio.sleep(0)  # slept: it gives up the loop and waits for no clock
