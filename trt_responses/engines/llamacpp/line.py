"""The queue for slots: by priority, then arrival, and one adapter at a time.

llama.cpp runs requests of one adapter in one batch, and requests of another wait until the last of
them ends. So adapters take turns: if requests wait for another adapter, a turn ends after a while,
and interrupted requests resume in the next turn of their adapter. Requests only: no child and no
clock.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator

from trt_responses.engines.llamacpp.request import Request

TURN_IDS = 16
"""Minimum ids for a request in a turn: each turn may have to read its prompt again."""


class Line:
    """Waiting requests, in one queue per adapter."""

    def __init__(self) -> None:
        self.adapter: str | None = None
        """The adapter with the current turn; None for the model itself."""
        self._over = False
        self._waiting: dict[str | None, list[tuple[float, int, Request]]] = {}
        """The non-empty queues, in the order of their turns."""
        self._arrivals = itertools.count()

    def __iter__(self) -> Iterator[Request]:
        return (entry[2] for line in self._waiting.values() for entry in line)

    @property
    def is_contended(self) -> bool:
        """Whether requests wait for another adapter than the current one."""
        return any(adapter != self.adapter for adapter in self._waiting)

    def put(self, request: Request, priority: float) -> None:
        line = self._waiting.setdefault(request.options.adapter, [])
        heapq.heappush(line, (-priority, next(self._arrivals), request))

    def first(self, *, idle: bool) -> Request | None:
        """The next request to start, or None. `idle`: no request is running."""
        if idle and (self._over or self.adapter not in self._waiting):
            self._turn()
        if self._over or not (line := self._waiting.get(self.adapter)):
            return None
        return line[0][2]

    def take(self) -> None:
        """Remove the first request."""
        heapq.heappop(self._waiting[self.adapter])
        if not self._waiting[self.adapter]:
            del self._waiting[self.adapter]

    def end_turn(self, running: Iterable[Request]) -> list[Request]:
        """Start no more requests in this turn. Returns those that can be interrupted and resume in
        the next one; the others finish first."""
        self._over = True
        return [r for r in running if r.can_go_on and len(r.given_ids) >= TURN_IDS]

    def clear(self) -> None:
        self._waiting.clear()

    def _turn(self) -> None:
        """Start the turn of the adapter that has waited longest."""
        self._over = False
        others = (adapter for adapter in self._waiting if adapter != self.adapter)
        adapter = next(others, self.adapter)
        if (own := self._waiting.pop(self.adapter, None)) is not None:
            self._waiting[self.adapter] = own  # after the others
        self.adapter = adapter
