"""Statistics of the model as KServe's protocol tells them. A listener of runs."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from trt_responses.apis.kserve.bodies import UNNUMBERED
from trt_responses.features.rollout.loaded import number_in
from trt_responses.run.facts import RunFacts

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
    """Counts and nanoseconds of all runs since the start, by any API, for each version of the
    engine by its number."""

    def __init__(self) -> None:
        self._of: defaultdict[str, _Sums] = defaultdict(_Sums)

    def run_ended(self, facts: RunFacts) -> None:
        if facts.response.status == "cancelled":
            return
        number = str(number_in(facts.response.id) or UNNUMBERED)
        self._of[number].count(facts, int(time.time() * 1000))

    def of(self, model: str, number: str) -> dict[str, Any]:
        """An entry of KServe's `model_stats`."""
        version = self._of.get(number, _NONE)
        sums = {name: {"count": count, "ns": ns} for name, (count, ns) in version.sums.items()}
        return {
            "name": model,
            "version": number,
            "last_inference": version.last_ms,
            "inference_count": sums["success"]["count"],
            "execution_count": sums["success"]["count"],
            "inference_stats": sums,
            "response_stats": {},
            "batch_stats": [],
            "memory_usage": [],
        }


class _Sums:
    """The sums of one version."""

    def __init__(self) -> None:
        self.last_ms = 0
        self.sums = dict.fromkeys(DURATIONS, (0, 0))

    def count(self, facts: RunFacts, now_ms: int) -> None:
        self.last_ms = now_ms
        if facts.response.status == "failed":
            self._add("fail", facts.end_ns - facts.arrival_ns)
            return
        self._add("success", facts.end_ns - facts.arrival_ns)
        requested, first, last = facts.requested_ns, facts.first_token_ns, facts.last_token_ns
        if requested is None or first is None or last is None:
            return  # it had no room for a token
        self._add("queue", requested - facts.arrival_ns)
        self._add("compute_input", first - requested)
        self._add("compute_infer", last - first)
        self._add("compute_output", facts.end_ns - last)

    def _add(self, name: str, spent_ns: int) -> None:
        count, total_ns = self.sums[name]
        self.sums[name] = count + 1, total_ns + max(0, spent_ns)


_NONE = _Sums()
