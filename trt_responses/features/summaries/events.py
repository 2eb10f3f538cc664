"""The stream events of a thought's summary, and what each changes."""

from __future__ import annotations

from typing import Literal

from trt_responses.frozen import dataclass, replace
from trt_responses.wire.events import FolderDelta, FolderEvent, OfItem
from trt_responses.wire.output import OutputItem, OutputReasoning, OutputSummaryText


def _summarised(item: OutputItem, *summary: OutputSummaryText) -> OutputReasoning:
    return replace(_reasoning(item), summary=summary)


def _reasoning(item: OutputItem) -> OutputReasoning:
    if not isinstance(item, OutputReasoning):
        raise TypeError(f"a {item.type} has no summary")
    return item


@dataclass(frozen=True)
class SummaryPartAdded(OfItem, FolderEvent):
    """A part of a thought's summary begins."""

    summary_index: int
    part: OutputSummaryText
    type: Literal["response.reasoning_summary_part.added"] = "response.reasoning_summary_part.added"

    def changed(self, item: OutputItem) -> OutputItem:
        return _summarised(item, *_reasoning(item).summary, self.part)


@dataclass(frozen=True)
class SummaryPartDone(OfItem, FolderEvent):
    """A part of a thought's summary is whole."""

    summary_index: int
    part: OutputSummaryText
    type: Literal["response.reasoning_summary_part.done"] = "response.reasoning_summary_part.done"


@dataclass(frozen=True)
class SummaryTextDelta(FolderDelta):
    """A piece of a thought's summary."""

    summary_index: int
    type: Literal["response.reasoning_summary_text.delta"] = "response.reasoning_summary_text.delta"

    def changed(self, item: OutputItem) -> OutputItem:
        *before, last = _reasoning(item).summary
        return _summarised(item, *before, OutputSummaryText(last.text + self.delta))


@dataclass(frozen=True)
class SummaryTextDone(OfItem, FolderEvent):
    """The whole text of a thought's summary."""

    summary_index: int
    text: str
    type: Literal["response.reasoning_summary_text.done"] = "response.reasoning_summary_text.done"

    def changed(self, item: OutputItem) -> OutputItem:
        return _summarised(item, *_reasoning(item).summary[:-1], OutputSummaryText(self.text))
