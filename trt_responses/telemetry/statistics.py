"""Statistics of the model as KServe's protocol tells them. A listener of runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.response.run.run import RunFacts

DURATIONS = (
    "success",
    "fail",
    "queue",
    "compute_input",
    "compute_infer",
    "compute_output",
    "cache_hit",
    "cache_miss",
)


class Statistics:
    """Counts and nanoseconds of all runs since the start, whichever API asked for them."""

    def __init__(self, clock_s: Callable[[], float] = time.time) -> None:
        self._clock_s = clock_s
        self._last_ms = 0
        self._sums = {name: [0, 0] for name in DURATIONS}

    def run_ended(self, facts: RunFacts) -> None:
        if facts.response.status == "cancelled":
            return
        self._last_ms = int(self._clock_s() * 1000)
        if facts.response.status == "failed":
            self._add("fail", facts.end_ns - facts.arrival_ns)
            return
        self._add("success", facts.end_ns - facts.arrival_ns)
        asked, first, last = facts.asked_ns, facts.first_token_ns, facts.last_token_ns
        if asked is None or first is None or last is None:
            return  # it had no room for a token
        self._add("queue", asked - facts.arrival_ns)
        self._add("compute_input", first - asked)
        self._add("compute_infer", last - first)
        self._add("compute_output", facts.end_ns - last)

    def _add(self, name: str, spent_ns: int) -> None:
        total = self._sums[name]
        total[0] += 1
        total[1] += max(0, spent_ns)

    def of(self, model: str, version: str) -> dict[str, Any]:
        """An entry of `model_stats`."""
        sums = {name: {"count": count, "ns": ns} for name, (count, ns) in self._sums.items()}
        return {
            "name": model,
            "version": version,
            "last_inference": self._last_ms,
            "inference_count": sums["success"]["count"],
            "execution_count": sums["success"]["count"],
            "inference_stats": sums,
            "response_stats": {},
            "batch_stats": [],
            "memory_usage": [],
        }
