"""The newest runs of this server, kept to be explained. A listener of runs.

Bounded by bytes, in memory only; of another server's runs, and of those before its start, it knows
nothing. What a client did not let us store is not kept here either.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from trt_responses.features.explain.outline import Outline, outline_of
from trt_responses.features.run_traces.trace import trace_of

if TYPE_CHECKING:
    from trt_responses.run.facts import RunFacts


class Explanations:
    """The runs that can be explained, by response id and owner."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, Outline] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def run_ended(self, facts: RunFacts) -> None:
        size_bytes = trace_of(facts).size_bytes
        if not facts.response.store or size_bytes > self._max_bytes:
            return
        self._kept[facts.response.id] = outline_of(facts)
        self._bytes += size_bytes
        while self._bytes > self._max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.trace.size_bytes

    def get(self, response_id: str, owner: str) -> Outline | None:
        run = self._kept.get(response_id)
        return run if run is not None and run.trace.owner == owner else None

    def forget(self, response_id: str, owner: str) -> None:
        """Forget a response that was deleted."""
        if (run := self.get(response_id, owner)) is not None:
            del self._kept[response_id]
            self._bytes -= run.trace.size_bytes
