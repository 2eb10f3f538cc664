"""Which rows the executor computes next: the line before the slots, and the slots.

One `step` is one call of the executor: a decode step for all that have one id to write, or a
chunk of one prompt, in turns, so that neither waits for the other. Knows no thread and no loop; it
is driven from one thread only.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from trt_responses.engine.base import Chunk
from trt_responses.engine.slots import Slots
from trt_responses.engine.tensorrt.executor import EXACT_TOKENS, Executor, Rows
from trt_responses.engine.tensorrt.sampler import Row

if TYPE_CHECKING:
    from trt_responses.engine.tensorrt.request import Request

Told = list[tuple["Request", Chunk]]

NO_NUMBERS = "The model gave no finite numbers for this prompt."


class Batch:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._slots = Slots(executor.slots)
        self._line: list[tuple[float, int, Request]] = []
        self._arrivals = itertools.count()
        self._running: list[Request] = []
        self._reading: deque[Request] = deque()
        """Those with more than one id to write: each gives its place to the next after a chunk."""
        self._read_last = False
        self._ids = np.zeros(executor.slots, np.int64)
        self._lens = np.zeros(executor.slots, np.int64)

    @property
    def busy(self) -> bool:
        return bool(self._running or self._line)

    def add(self, request: Request) -> None:
        heapq.heappush(self._line, (-request.options.priority, next(self._arrivals), request))

    def step(self) -> Told:
        """One call of the executor, if there is anything to compute, and what it gave to whom."""
        for request in [request for request in self._running if request.over]:
            self._free(request)
        while self._line and self._slots:
            request = heapq.heappop(self._line)[2]
            if not request.over:
                self._admit(request)
        speaking = [request for request in self._running if request.pending == 1]
        if self._reading and not (speaking and self._read_last):
            self._read_last = True
            return self._read()
        self._read_last = False
        return self._speak(speaking) if speaking else []

    def _admit(self, request: Request) -> None:
        """The last id of a prompt is always computed anew: its row is the answer's first."""
        slot = self._slots.take(request.ids, request.options.cache_salt)
        request.slot = slot
        request.written = request.cached_tokens = min(slot.known, len(request.ids) - 1)
        self._running.append(request)
        if request.pending > 1:
            self._reading.append(request)

    def _free(self, request: Request) -> None:
        """Its slot keeps what is written, for whoever continues it."""
        assert request.slot is not None
        self._running.remove(request)
        if request in self._reading:
            self._reading.remove(request)
        request.slot.ids = request.ids[: request.written]
        self._lens[request.slot.number] = min(request.written, self._executor.length - 1)
        self._slots.give_back(request.slot, ())

    def _read(self) -> Told:
        """A chunk of the prompt whose turn it is."""
        request = self._reading.popleft()
        begin, end = request.written, min(request.written + self._executor.chunk, len(request.ids))
        rows = self._chunk(request, begin, end)
        request.written = end
        self._lens[request.slot.number] = end  # type: ignore[union-attr]  # it runs
        if request.pending > 1:
            self._reading.append(request)
        return [] if request.pending else self._heard([(request, 0)], rows)

    def _chunk(self, request: Request, begin: int, end: int) -> Rows:
        """Computed at once, or in pieces that are exact where the experts were asked too much."""
        assert request.slot is not None
        prefill, slot = self._executor.prefill, request.slot.number
        ids = np.asarray(request.ids[begin:end], np.int64)
        rows = prefill(slot, ids, begin)
        if rows.overflow > 0:
            for start in range(0, len(ids), EXACT_TOKENS):
                rows = prefill(slot, ids[start : start + EXACT_TOKENS], begin + start)
        return rows

    def _speak(self, speaking: list[Request]) -> Told:
        """One id for each that can say one. The others' rows write where the next id comes."""
        places = [(request, request.slot.number) for request in speaking if request.slot]
        for request, place in places:
            self._ids[place] = request.ids[-1]
            self._lens[place] = request.written
        asked = range(min(place for _, place in places), max(place for _, place in places) + 1)
        rows = self._executor.decode(self._ids, self._lens, asked)
        for request, _ in places:
            request.written += 1
        return self._heard(places, rows)

    def _heard(self, places: list[tuple[Request, int]], rows: Rows) -> Told:
        told = [(request, self._said(request, rows, place)) for request, place in places]
        for request, chunk in told:
            if chunk.finish is not None:
                self._free(request)
        return told

    def _said(self, request: Request, rows: Rows, place: int) -> Chunk:
        lse = float(rows.lse[place])
        if not math.isfinite(lse):
            request.written = 0  # what the slot holds is not to be used again
            return Chunk(finish="error", error=NO_NUMBERS)
        row = Row(rows.values[place], rows.ids[place], lse, lambda: rows.logits(place))
        return request.say(row)
