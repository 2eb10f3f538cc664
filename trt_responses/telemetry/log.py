"""The log line of a finished run. A listener of runs, which know nothing of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trt_responses.response.run import RunFacts

logger = logging.getLogger("trt_responses.runs")


class RunLog:
    """Writes a line for each run: its status, its tokens, its times and its repairs."""

    def run_ended(self, facts: RunFacts) -> None:
        response, usage = facts.response, facts.response.usage
        logger.info(
            "%s %s input=%d output=%d first_token_ms=%s total_ms=%d repairs=%s",
            response.id,
            response.status,
            usage.input_tokens if usage else 0,
            usage.output_tokens if usage else 0,
            _ms(facts.arrival_ns, facts.first_token_ns),
            (facts.end_ns - facts.arrival_ns) // 1_000_000,
            dict(facts.repairs) or "none",
        )


def _ms(since_ns: int, until_ns: int | None) -> str:
    return "-" if until_ns is None else str((until_ns - since_ns) // 1_000_000)
