"""What is kept of a run to explain it. Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.run_traces.trace import trace_of
from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.features.run_traces.trace import Trace
    from trt_responses.language.fragments import RepairKind
    from trt_responses.run.facts import RunFacts
    from trt_responses.wire.response import ResponseStatus


@dataclass(frozen=True, slots=True)
class Outline:
    """What is kept of a run to explain it: all but its texts, which its ids say."""

    id: str
    model: str
    status: ResponseStatus
    error: str | None
    calls: int
    """The calls among the items of its output."""
    repairs: Mapping[RepairKind, int]
    arrival_ns: int
    requested_ns: int | None
    first_token_ns: int | None
    last_token_ns: int | None
    end_ns: int
    trace: Trace


def outline_of(facts: RunFacts) -> Outline:
    """What is kept of a run that has ended."""
    response = facts.response
    return Outline(
        id=response.id,
        model=response.model,
        status=response.status,
        error=response.error.message if response.error is not None else None,
        calls=sum([item.type.endswith("_call") for item in response.output]),
        repairs=facts.repairs,
        arrival_ns=facts.arrival_ns,
        requested_ns=facts.requested_ns,
        first_token_ns=facts.first_token_ns,
        last_token_ns=facts.last_token_ns,
        end_ns=facts.end_ns,
        trace=trace_of(facts),
    )
