"""One line for each request. Never a word of the conversation.

A request that makes a response has the response's line, at its end; any other has its own. Knows
finished runs and requests; the core knows nothing of it.
"""

from __future__ import annotations

import logging

from trt_responses.features.metrics.requests import RequestFacts
from trt_responses.run.facts import RunFacts

logger = logging.getLogger("trt_responses.requests")

PROBES = ("/health", "/v1/health", "/v2/health", "/metrics")
"""Routes that are called several times a second: their lines are for debugging."""
REJECTED = {*range(400, 500), 503}
"""Statuses of requests that the server refused to serve."""


class RequestLog:
    """Writes the lines. A listener of runs and of requests."""

    def run_ended(self, facts: RunFacts) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        response, usage = facts.response, facts.response.usage
        tokens_out = usage.output_tokens if usage else 0
        _write(
            logging.INFO,
            f"finished {response.id}",
            status=response.status,
            **({"error": response.error.code} if response.error is not None else {}),
            request=facts.origin.request_id,
            tokens_in=usage.input_tokens if usage else 0,
            tokens_out=tokens_out,
            first_token_ms=_ms(facts.arrival_ns, facts.first_token_ns),
            duration_ms=_ms(facts.arrival_ns, facts.end_ns),
            tokens_per_s=_tokens_per_s(facts, tokens_out),
            **({"repairs": dict(facts.repairs)} if facts.repairs else {}),
            **({"tools": _tools(facts)} if facts.tool_runs else {}),
        )

    def request_ended(self, facts: RequestFacts) -> None:
        if facts.end != "none":
            return  # the line of its response says more
        probe = facts.endpoint.startswith(PROBES) and facts.status < 400
        _write(
            logging.DEBUG if probe else logging.INFO,
            f"{_verb(facts.status)} {facts.method} {facts.endpoint}",
            status=facts.status,
            request=facts.request_id,
            duration_ms=facts.total_ns // 1_000_000,
        )


def _verb(status: int) -> str:
    if status in REJECTED:
        return "rejected"
    return "failed" if status >= 500 else "served"


def _tokens_per_s(facts: RunFacts, tokens: int) -> float | None:
    """The speed behind the first token; None for fewer than two tokens."""
    first_ns, last_ns = facts.first_token_ns, facts.last_token_ns
    if first_ns is None or last_ns is None or last_ns <= first_ns or tokens < 2:
        return None
    return round((tokens - 1) * 1e9 / (last_ns - first_ns), 1)


def _tools(facts: RunFacts) -> str:
    """The calls that the server ran: the tool, its duration, and the size of its answer."""
    return ",".join(
        f"{run.tool}:{run.duration_ns // 1_000_000}ms:{run.answer_bytes}B{':failed' * run.failed}"
        for run in facts.tool_runs
    )


def _write(level: int, message: str, **values: object) -> None:
    logger.log(level, "%s", message, extra={"fields": values})


def _ms(since_ns: int, until_ns: int | None) -> int | None:
    return None if until_ns is None else (until_ns - since_ns) // 1_000_000
