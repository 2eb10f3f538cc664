"""The line before the slots: by priority, then by arrival, and one adapter at a time.

llama.cpp answers requests of one adapter in one batch, and lets those of another wait until the
last of them has ended. So adapters take turns: when somebody waits for another one, a turn ends
after a while, and whoever was answered goes on in the next turn of its adapter. Knows requests;
knows no child and no clock.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trt_responses.engines.llamacpp.request import Request

TURN_IDS = 16
"""Ids that a request is given in a turn at least: its prompt may have to be read anew in each."""


class Line:
    """Requests that wait, those of each adapter in a line of their own."""

    def __init__(self) -> None:
        self.adapter: str | None = None
        """The adapter whose turn it is; None for the model itself."""
        self._over = False
        self._waiting: dict[str | None, list[tuple[float, int, Request]]] = {}
        """The lines that are not empty, in the order of their turns."""
        self._arrivals = itertools.count()

    def __iter__(self) -> Iterator[Request]:
        return (entry[2] for line in self._waiting.values() for entry in line)

    @property
    def is_contended(self) -> bool:
        """Whether somebody waits for another adapter than the one whose turn it is."""
        return any(adapter != self.adapter for adapter in self._waiting)

    def put(self, request: Request, priority: float) -> None:
        line = self._waiting.setdefault(request.options.adapter, [])
        heapq.heappush(line, (-priority, next(self._arrivals), request))

    def first(self, *, idle: bool) -> Request | None:
        """The request that begins next, if one may; `idle` while none runs."""
        if idle and (self._over or self.adapter not in self._waiting):
            self._turn()
        if self._over or not (line := self._waiting.get(self.adapter)):
            return None
        return line[0][2]

    def take(self) -> None:
        """Take the first one out."""
        heapq.heappop(self._waiting[self.adapter])
        if not self._waiting[self.adapter]:
            del self._waiting[self.adapter]

    def end_turn(self, running: Iterable[Request]) -> list[Request]:
        """Begin no more of this turn. Returns those that can stop here and go on in the next one;
        the others are waited for."""
        self._over = True
        return [r for r in running if r.can_go_on and len(r.given_ids) >= TURN_IDS]

    def clear(self) -> None:
        self._waiting.clear()

    def _turn(self) -> None:
        """Begin the turn of the adapter that has waited for one the longest."""
        self._over = False
        others = (adapter for adapter in self._waiting if adapter != self.adapter)
        adapter = next(others, self.adapter)
        if (own := self._waiting.pop(self.adapter, None)) is not None:
            self._waiting[self.adapter] = own  # behind the others
        self.adapter = adapter
