"""The engine of a llama.cpp server elsewhere.

It assigns the server's slots itself, so that a prompt finds its prefix and owners share none.
Requests beyond the slots wait here, by priority.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Any

from trt_responses.engine import Limits
from trt_responses.engines.http_engine import HttpEngine, Request
from trt_responses.engines.llamacpp.server_wire import LlamaServerWire
from trt_responses.engines.slots import Slots


class LlamaServerEngine(HttpEngine):
    """The engine of one `llama-server`, whose slots are all for this server."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._slots = Slots(0)
        self._waiting: list[tuple[float, int, Request]] = []
        self._arrivals = itertools.count()

    async def _describe(self) -> Limits:
        limits = await super()._describe()
        self._slots = Slots(limits.max_batch)  # those of a new process are empty
        return limits

    def send(self, request: Request) -> None:
        if not isinstance(self._wire, LlamaServerWire):  # another server, found at its address
            return super().send(request)
        entry = (-request.options.priority, next(self._arrivals), request)
        heapq.heappush(self._waiting, entry)
        return self._dispatch()

    def _dispatch(self) -> None:
        while self._slots and self._waiting:
            request = heapq.heappop(self._waiting)[2]
            if request.over:
                continue
            slot = self._slots.take(request.prompt_ids, request.options.salt)
            request.slot = (self._slots, slot)
            place = {"id_slot": slot.number, "cache_prompt": slot.reusable}
            request.fields = {**request.fields, **place}
            super().send(request)

    def over(self, request: Any) -> None:
        super().over(request)
        if request.slot is not None:
            slots, slot = request.slot
            request.slot = None
            slots.give_back(slot, request.ids)
        self._dispatch()
