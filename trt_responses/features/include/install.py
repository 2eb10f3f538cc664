"""What `include` adds to the last snapshot of a response: its metrics, and its messages with ids.

Both are ours. Knows a run that is over, and the dialect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, get_args

from trt_responses.accept.accepted import Accepted
from trt_responses.dialect import Dialect
from trt_responses.errors import Forbidden
from trt_responses.feature import Step
from trt_responses.features.run_traces.settings import TraceSettings
from trt_responses.features.run_traces.trace import trace_of
from trt_responses.frozen import dataclass, replace
from trt_responses.run.draft import Draft
from trt_responses.run.facts import RunFacts
from trt_responses.run.run import Run
from trt_responses.setup.server import Server
from trt_responses.wire.response import Response

Json = dict[str, Any]

Included = Literal["metrics", "messages"]
INCLUDED: tuple[Included, ...] = get_args(Included)


@dataclass(frozen=True)
class InspectedResponse(Response):
    """A final snapshot with the fields that `include` requested, which extend OpenAI's API."""

    metrics: Mapping[str, Any] | None = None
    input_messages: Sequence[Mapping[str, Any]] | None = None
    output_messages: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Inclusion:
    """Adds what `include` requests to last snapshots."""

    reads = ("included",)
    dialect_of: Callable[[str], Dialect]
    """Returns the dialect of a model."""
    tells_messages: bool
    """Whether texts with their ids may be included."""

    def accept(self, accepted: Accepted) -> Step | None:
        wanted = [value for value in INCLUDED if value in accepted.included]
        return IncludeStep(self, wanted) if wanted else None

    def messages(self, facts: RunFacts) -> Json:
        """What the model read and wrote. Takes long: call it in a thread."""
        trace, dialect = trace_of(facts), self.dialect_of(facts.response.model)
        written = [i for s in trace.segments for i in (*s.forced, *s.kept)]
        return {
            "input_messages": [
                _message(ids, dialect) for ids in dialect.messages(trace.prompt_ids)
            ],
            "output_messages": [_message(ids, dialect) for ids in dialect.messages(written)],
        }


def _message(ids: Sequence[int], dialect: Dialect) -> Json:
    """A message in the shape that vLLM's `enable_response_messages` gives."""
    text = dialect.lexicon.text(list(ids))
    return {"type": "raw_message_tokens", "message": text, "tokens": list(ids)}


class IncludeStep(Step):
    """Adds to the last snapshot of one run."""

    order = 90  # all else is in the snapshot by then

    def __init__(self, inclusion: Inclusion, included: Collection[Included]) -> None:
        self._inclusion = inclusion
        self._wanted = included

    async def acquire(self, draft: Draft) -> None:
        """Refuse what a setting does not allow."""
        if "messages" in self._wanted and not self._inclusion.tells_messages:
            raise Forbidden(
                "'include' names 'messages', which this server hides: the operator must set "
                "TRT_RESPONSES_EXPLAIN to 'full'.",
                param="include",
                code="messages_hidden",
            )

    def write(self, draft: Draft) -> None:
        self._wanted = [value for value in self._wanted if value in draft.accepted.included]
        if "metrics" in self._wanted:
            draft.options = replace(draft.options, metrics=True)

    async def conclude(self, last: Response, run: Run) -> Response:
        if not self._wanted:
            return last
        facts = run.facts(last)
        extra: Json = {"metrics": metrics_of(facts)} if "metrics" in self._wanted else {}
        if "messages" in self._wanted:
            extra |= await asyncio.to_thread(self._inclusion.messages, facts)
        return InspectedResponse(**vars(last), **extra)


def metrics_of(facts: RunFacts) -> Json:
    """The times of a run in milliseconds. `queue` ends when the engine gets the request; the
    engine's own queue is in `first_token`, and among its own metrics, if it has any."""
    arrived, first, last = facts.arrival_ns, facts.first_token_ns, facts.last_token_ns
    usage, trace, gap_ms = facts.response.usage, trace_of(facts), None
    tokens = usage.output_tokens if usage else 0
    if first is not None and last is not None and tokens > 1:
        gap_ms = (last - first) / 1e6 / (tokens - 1)
    return {
        "queue_ms": _ms(arrived, facts.requested_ns),
        "first_token_ms": _ms(arrived, first),
        "per_token_ms": gap_ms and round(gap_ms, 3),
        "tokens_per_second": round(1000 / gap_ms, 1) if gap_ms else None,
        "total_ms": _ms(arrived, facts.end_ns),
        "input_tokens": len(trace.prompt_ids),
        "cached_tokens": trace.cached_tokens,
        "output_tokens": tokens,
        "segments": [
            {
                "name": segment.name,
                "outcome": segment.outcome,
                "forced": len(segment.forced),
                "kept": len(segment.kept),
                "discarded": len(segment.discarded),
                "ms": _ms(segment.began_ns, segment.ended_ns),
                "engine": segment.metrics,
            }
            for segment in trace.segments
        ],
        "repairs": dict(facts.repairs),
    }


def _ms(since_ns: int, until_ns: int | None) -> float | None:
    return None if until_ns is None else round((until_ns - since_ns) / 1e6, 3)


def install(server: Server) -> None:
    shows = TraceSettings.of(server.settings).explain == "full"
    server.features.append(Inclusion(server.dialect_of, tells_messages=shows))
