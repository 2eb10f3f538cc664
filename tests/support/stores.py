"""Stores with a fault, around the real one in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trt_responses.errors import ApiError
from trt_responses.stores.memory.store import MemoryStore

if TYPE_CHECKING:
    from trt_responses.store import Record


def memory() -> MemoryStore:
    return MemoryStore()


class SlowStore(MemoryStore):
    """Keeps nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.may = asyncio.Event()

    async def put(self, record: Record) -> None:
        self.asked.set()
        await self.may.wait()
        await super().put(record)


class BrokenStore(MemoryStore):
    """Raises at every put: what a disk or a network does."""

    def __init__(self, fault: Exception) -> None:
        super().__init__()
        self._fault = fault

    async def put(self, record: Record) -> None:
        raise self._fault


FAULTS: tuple[Exception, ...] = (OSError("disk full"), ApiError("no room", status=503), KeyError())
