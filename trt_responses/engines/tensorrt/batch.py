"""Schedules the executor: the queue for slots, and the slots.

One `step` is one call of the executor: a decode step for all requests with one id to write, or a
chunk of one prompt, in turns, so that neither waits for the other. It runs on one thread only; no
thread and no loop here.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque

import numpy as np

from trt_responses.engine import Chunk
from trt_responses.engines.slots import Slots
from trt_responses.engines.tensorrt.executor import EXACT_TOKENS, Executor, Rows
from trt_responses.engines.tensorrt.request import Request
from trt_responses.engines.tensorrt.sampler import Row

Emitted = list[tuple["Request", Chunk]]

NO_NUMBERS = "The model computed non-finite numbers for this prompt."


class Batch:
    """The waiting requests, and those with a slot."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._slots = Slots(executor.slots)
        self._line: list[tuple[float, int, Request]] = []
        self._arrivals = itertools.count()
        self._running: list[Request] = []
        self._prefilling: deque[Request] = deque()
        """Requests with more than one id to write; each moves to the end after a chunk."""
        self._prefilled_last = False
        self._ids = np.zeros(executor.slots, np.int64)
        self._lens = np.zeros(executor.slots, np.int64)

    @property
    def busy(self) -> bool:
        return bool(self._running or self._line)

    def add(self, request: Request) -> None:
        heapq.heappush(self._line, (-request.options.priority, next(self._arrivals), request))

    def step(self) -> Emitted:
        """Make one call of the executor, if there is work. Returns the chunks."""
        self._schedule()
        decoding = [request for request in self._running if request.pending == 1]
        if self._prefilling and not (decoding and self._prefilled_last):
            self._prefilled_last = True
            return self._prefill()
        self._prefilled_last = False
        return self._decode(decoding) if decoding else []

    def _schedule(self) -> None:
        """Free the slots of finished requests, and assign slots to waiting ones."""
        for request in [request for request in self._running if request.over]:
            self._free(request)
        while self._line and self._slots:
            request = heapq.heappop(self._line)[2]
            if not request.over:
                self._admit(request)

    def _admit(self, request: Request) -> None:
        """Assign a slot. The last id of the prompt is always computed again, since its row gives
        the first id of the answer."""
        slot = self._slots.take(request.ids, request.options.salt)
        request.slot = slot
        request.written = request.cached_tokens = min(slot.known, len(request.ids) - 1)
        self._running.append(request)
        if request.pending > 1:
            self._prefilling.append(request)

    def _free(self, request: Request) -> None:
        """Free a slot; its cache stays for a request with the same prefix."""
        assert request.slot is not None
        self._running.remove(request)
        if request in self._prefilling:
            self._prefilling.remove(request)
        request.slot.ids = request.ids[: request.written]
        self._lens[request.slot.number] = min(request.written, self._executor.length - 1)
        self._slots.give_back(request.slot, ())

    def _prefill(self) -> Emitted:
        """Compute a chunk of the next prompt."""
        request = self._prefilling.popleft()
        begin, end = request.written, min(request.written + self._executor.chunk, len(request.ids))
        rows = self._chunk(request, begin, end)
        request.written = end
        self._lens[request.slot.number] = end  # type: ignore[union-attr]  # it has a slot
        if request.pending > 1:
            self._prefilling.append(request)
        return [] if request.pending else self._emit([(request, 0)], rows)

    def _chunk(self, request: Request, begin: int, end: int) -> Rows:
        """Compute ids `begin` to `end`: at once, or in smaller, exact pieces if an expert
        overflowed."""
        assert request.slot is not None
        prefill, slot = self._executor.prefill, request.slot.number
        ids = np.asarray(request.ids[begin:end], np.int64)
        rows = prefill(slot, ids, begin)
        if rows.overflow > 0:
            for start in range(0, len(ids), EXACT_TOKENS):
                rows = prefill(slot, ids[start : start + EXACT_TOKENS], begin + start)
        return rows

    def _decode(self, decoding: list[Request]) -> Emitted:
        """Compute one id for each of these requests. Rows of others write where their next id will
        be."""
        places = [(request, request.slot.number) for request in decoding if request.slot]
        for request, place in places:
            self._ids[place] = request.ids[-1]
            self._lens[place] = request.written
        needed = range(min(place for _, place in places), max(place for _, place in places) + 1)
        rows = self._executor.decode(self._ids, self._lens, needed)
        for request, _ in places:
            request.written += 1
        return self._emit(places, rows)

    def _emit(self, places: list[tuple[Request, int]], rows: Rows) -> Emitted:
        """Sample each request's next id from its row, and free the slots of finished requests."""
        emitted = [(request, self._sampled(request, rows, place)) for request, place in places]
        for request, chunk in emitted:
            if chunk.finish is not None:
                self._free(request)
        return emitted

    def _sampled(self, request: Request, rows: Rows, place: int) -> Chunk:
        """The chunk of the next id; an error if the row's numbers are not finite."""
        lse = float(rows.lse[place])
        if not math.isfinite(lse):
            request.written = 0  # the slot's cache must not be reused
            return Chunk(finish="error", error=NO_NUMBERS)
        row = Row(rows.values[place], rows.ids[place], lse, lambda: rows.logits(place))
        return request.sample(row)
