"""One line for each request. Never a word of the conversation.

A request that makes a response has the response's line, at its end; any other has its own. Knows
finished runs and requests; the core knows nothing of it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trt_responses.run.facts import RunFacts
    from trt_responses.web.middleware import RequestFacts

logger = logging.getLogger("trt_responses.requests")

PROBES = ("/health", "/v1/health", "/v2/health", "/metrics")
"""Routes that are called several times a second: their lines are for debugging."""
WORST_FINE = 399


class RequestLog:
    """Writes the lines. A listener of runs and of requests."""

    def run_ended(self, facts: RunFacts) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        response, usage = facts.response, facts.response.usage
        _tell(
            logging.INFO,
            f"{response.id} {response.status}",
            request=facts.origin.request_id,
            input=usage.input_tokens if usage else 0,
            output=usage.output_tokens if usage else 0,
            first_token_ms=_ms(facts.arrival_ns, facts.first_token_ns),
            total_ms=_ms(facts.arrival_ns, facts.end_ns),
            repairs=dict(facts.repairs) or None,
            **({"tools": _tools(facts)} if facts.tool_runs else {}),
        )

    def request_ended(self, facts: RequestFacts) -> None:
        if facts.end != "none":
            return  # the line of its response says more
        quiet = facts.endpoint.startswith(PROBES) and facts.status <= WORST_FINE
        _tell(
            logging.DEBUG if quiet else logging.INFO,
            f"{facts.method} {facts.endpoint} {facts.status}",
            request=facts.request_id,
            total_ms=facts.total_ns // 1_000_000,
        )


def _tools(facts: RunFacts) -> str:
    """The calls that were run here: the tool, how long it took, and the size of its answer."""
    return ",".join(
        f"{run.tool}:{run.duration_ns // 1_000_000}ms:{run.answer_bytes}B{':failed' * run.failed}"
        for run in facts.tool_runs
    )


def _tell(level: int, message: str, **values: object) -> None:
    logger.log(level, "%s", message, extra={"fields": values})


def _ms(since_ns: int, until_ns: int | None) -> int | None:
    return None if until_ns is None else (until_ns - since_ns) // 1_000_000
