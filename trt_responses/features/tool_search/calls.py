"""The events of tool searches, by the client and here, from the JSON that the model wrote."""

from __future__ import annotations

from typing import Any

from trt_responses.features.hosted_tools.hosted_calls import HostedCall, Outcome, Row
from trt_responses.features.tool_search import output as to
from trt_responses.frozen import replace
from trt_responses.log.item_events import Callee, FolderCall, Mint
from trt_responses.wire import events as e
from trt_responses.wire import output as o
from trt_responses.wire.past_calls import object_in


def arguments_in(text: str) -> dict[str, Any]:
    """The arguments of a search, as far as they were written."""
    return object_in(text, partial="trailing-strings") or {}


class SearchCall(FolderCall):
    """A search that the client is to make."""

    waits = True

    def __init__(self, mint: Mint, index: int, callee: Callee) -> None:
        self.id = mint("tsc")
        self.index = index
        self._item = to.OutputToolSearchCall(self.id, mint("call"))

    def begin(self) -> tuple[e.Event, ...]:
        return (e.OutputItemAdded(self.index, self._item),)

    def at_once(self, written: str, status: o.Status) -> tuple[e.Event, ...]:
        item = replace(self._item, arguments=arguments_in(written), status=status)
        return (e.OutputItemDone(self.index, item),)


def _call(call: HostedCall, text: str, outcome: Outcome) -> to.OutputHostedToolSearchCall:
    status: o.HostedStatus = "completed" if outcome.status == "failed" else outcome.status
    return to.OutputHostedToolSearchCall(call.id, arguments_in(text), status)


def _result(call: HostedCall, item_id: str, index: int, outcome: Outcome) -> tuple[e.Event, ...]:
    empty = to.OutputToolSearchResult(item_id)
    whole = replace(empty, tools=outcome.details.get("tools", ()), status="completed")
    return (e.OutputItemAdded(index, empty), e.OutputItemDone(index, whole))


ROW = Row(to.OutputHostedToolSearchCall, "tsc", _call, result=_result, empty=b"{}")
"""Of searches that are made here."""
