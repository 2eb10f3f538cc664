"""Sends a thought as its summary, since some clients show nothing else of it: where the operator
has it so and a request wants one."""

from __future__ import annotations

from trt_responses.accept.accepted import Accepted
from trt_responses.feature import Step
from trt_responses.features.summaries import events as se
from trt_responses.features.summaries.settings import SummarySettings
from trt_responses.log.item_events import Reasoning
from trt_responses.run.draft import Draft
from trt_responses.setup.server import Server
from trt_responses.wire import events as e
from trt_responses.wire import output as o


def install(server: Server) -> None:
    if SummarySettings.of(server.settings).thought_summaries:
        server.features.append(Summaries())


class Summaries:
    """Serves requests that want a summary of thoughts."""

    reads = ("summarised",)

    def accept(self, accepted: Accepted) -> Step | None:
        return Summarised() if accepted.summarised else None


class Summarised(Step):
    """The thoughts of one run."""

    def write(self, draft: Draft) -> None:
        draft.machine_options["new_thought"] = Summary


class Summary(Reasoning):
    """A thought that is sent as its summary."""

    def begin(self) -> tuple[e.Event, ...]:
        return (
            e.OutputItemAdded(self.index, o.OutputReasoning(self.id)),
            se.SummaryPartAdded(self.id, self.index, 0, o.OutputSummaryText()),
        )

    def delta(self) -> e.Delta:
        return se.SummaryTextDelta(self.id, self.index, "", 0)

    def end(self, item: o.OutputItem, status: o.Status) -> tuple[e.Event, ...]:
        assert isinstance(item, o.OutputReasoning)
        (part,) = item.summary
        return (
            se.SummaryTextDone(self.id, self.index, 0, part.text),
            se.SummaryPartDone(self.id, self.index, 0, part),
            e.OutputItemDone(self.index, self.done(item, status)),
        )
