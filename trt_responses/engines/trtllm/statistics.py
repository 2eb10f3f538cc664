"""Polls TensorRT-LLM's statistics: cache use and the length of its own queue.

It uses one method of the package and the keys of its answer: no requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from trt_responses.engines.trtllm.api import LLM
from trt_responses.errors import root_cause

logger = logging.getLogger(__name__)

EVERY_S = 2.0
WAIT_S = 1.0
"""Timeout of an answer."""


class Statistics:
    """Polls the package's statistics. `cache_use`: share of the cache's blocks in use, or None
    before the first answer. `queued`: requests in the package's own queue."""

    def __init__(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        self.cache_use: float | None = None
        self.queued: int | None = None
        self._sleep = sleep
        self._reading: asyncio.Task[None] | None = None

    def start(self, llm: LLM) -> None:
        self._reading = asyncio.create_task(self._read(llm))

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self, llm: LLM) -> None:
        while True:
            await self._sleep(EVERY_S)
            try:
                async for step in llm.get_stats_async(timeout=WAIT_S):
                    self.cache_use, self.queued = cache_use(step), queued(step)
            except Exception as error:  # any class: only numbers are lost
                logger.debug("could not read TensorRT-LLM's statistics: %s", root_cause(error))


def cache_use(step: Mapping[str, object]) -> float | None:
    """The share of the cache in use in one step's statistics, or None."""
    blocks = step.get("kvCacheStats")
    if not isinstance(blocks, dict):
        return None
    used, most = blocks.get("usedNumBlocks"), blocks.get("maxNumBlocks")
    if not isinstance(used, int) or not isinstance(most, int) or most < 1:
        return None
    return used / most


def queued(step: Mapping[str, object]) -> int | None:
    """The length of the package's queue in one step's statistics, or None."""
    waiting = step.get("numQueuedRequests")
    return waiting if isinstance(waiting, int) else None
