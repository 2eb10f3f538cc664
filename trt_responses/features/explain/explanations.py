"""The newest runs of this server, kept to be explained. A listener of runs.

Bounded by bytes, in memory only; of another server's runs, and of those before its start, it knows
nothing. What a client did not let us store is not kept here either.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from trt_responses.features.run_traces.trace import Trace, trace_of
from trt_responses.frozen import dataclass
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


class Explanations:
    """The runs that can be explained, by response id and owner."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, Outline] = OrderedDict()

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
