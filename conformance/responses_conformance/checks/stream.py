"""Laws of the events of a streamed response."""

from __future__ import annotations

from responses_conformance.checks.base import check
from responses_conformance.checks.kit import ENDS, Kit

EVENTS = "API reference, Responses, Streaming events"


@check(
    "responses.stream.one_end",
    "A stream has one terminal event, and it is the last.",
    f"{EVENTS}: response.completed, response.incomplete, response.failed",
)
def one_end(kit: Kit) -> None:
    for run in kit.runs():
        ends = run.of(*ENDS)
        run.expect(len(ends) == 1, f"{len(ends)} terminal events", ends[-1] if ends else None)
        run.expect(run.events[-1] is ends[0], "events follow the terminal one", run.events[-1])
