"""When the messages of WebSockets are read: one at a time, and each owner's in a share of the time.

Knows owners and clocks; knows no connection and no frame.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

REST = 3
"""The next message of an owner waits this many times as long as its last one took."""


class Intake:
    """All owners' turns. A connection that waits for one reads nothing from its client."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()
        self._owners: WeakValueDictionary[str, OwnerTurns] = WeakValueDictionary()

    def of(self, owner: str) -> OwnerTurns:
        """The turns of an owner, for all its connections to hold."""
        return self._owners.setdefault(owner, OwnerTurns(self._one))


class OwnerTurns:
    """One owner's turns."""

    def __init__(self, one: asyncio.Lock) -> None:
        self._one = one
        self._own = asyncio.Lock()
        self._rests_until_s = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """A block in which a message is read."""
        now = asyncio.get_running_loop().time
        async with self._own:
            await asyncio.sleep(self._rests_until_s - now())
            async with self._one:
                begun_s = time.thread_time()
                try:
                    yield
                finally:
                    took_s = time.thread_time() - begun_s
                    self._rests_until_s = now() + REST * took_s
