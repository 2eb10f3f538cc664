"""Turns at what takes a processor: one thread computes at a time, and owners go in a ring.

Knows owners by name; knows nothing of what is computed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Gives turns: the owner who has waited longest goes next, so that owners alternate."""

    def __init__(self, most: int = 2) -> None:
        """`most` computations go on at a time: each takes its turns from the loop."""
        self._free = most
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._busy: dict[str, int] = {}
        self._most = most

    @asynccontextmanager
    async def of(self, owner: str) -> AsyncIterator[None]:
        await self._begin(owner)
        try:
            yield
        finally:
            self._end(owner)

    async def _begin(self, owner: str) -> None:
        """Wait for a turn. One owner alone never has all the places, so that another owner's small
        computation starts at once."""
        if self._may_begin(owner):
            self._take(owner)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end(owner)
            raise

    def _may_begin(self, owner: str) -> bool:
        return self._free > 0 and self._busy.get(owner, 0) < max(1, self._most - 1)

    def _take(self, owner: str) -> None:
        self._free -= 1
        self._busy[owner] = self._busy.get(owner, 0) + 1

    def _end(self, owner: str) -> None:
        self._free += 1
        self._busy[owner] -= 1
        if not self._busy[owner]:
            del self._busy[owner]
        for waiting, line in list(self._waiting.items()):
            while line and line[0].done():
                line.popleft()  # it was cancelled
            if line and self._may_begin(waiting):
                self._take(waiting)
                line.popleft().set_result(None)
                self._waiting.move_to_end(waiting)
            if not line:
                del self._waiting[waiting]
