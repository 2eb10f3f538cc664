"""A line of the log for each run, with its segments and without its text."""

from __future__ import annotations

import logging

from trt_responses.features.run_traces.trace import trace_of
from trt_responses.run.facts import RunFacts

logger = logging.getLogger(__name__)


class SegmentLines:
    """Writes them where the log's level asks for that."""

    def run_ended(self, facts: RunFacts) -> None:
        if not logger.isEnabledFor(logging.DEBUG):
            return
        trace = trace_of(facts)
        if trace.segments:
            notes = "; ".join(segment.summary() for segment in trace.segments)
            logger.debug("%s %s: %s", facts.response.id, trace.plan, notes)
