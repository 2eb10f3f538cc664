"""Items of tool searches: written here, and sent back as history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import orjson
from pydantic_core import from_json

from trt_responses.accept.tools import client_tools
from trt_responses.features.tool_search.texts import definitions
from trt_responses.frozen import replace
from trt_responses.log.action_calls import Action
from trt_responses.log.hosted_calls import Row
from trt_responses.wire import events as e
from trt_responses.wire import output as o
from trt_responses.wire.base import ListOf
from trt_responses.wire.past_calls import CallText, PastCall, canonical
from trt_responses.wire.tools import Tool, flat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.log.action_calls import ActionCall
    from trt_responses.log.hosted_calls import HostedCall, Outcome

NAME: Final = "tool_search"
DESCRIPTION = "Searches for tools that are not loaded yet, by what they do."
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string"}},
    "required": ["query"],
    "additionalProperties": False,
}


class ToolSearchCall(PastCall):
    """A search for tools."""

    prefix = "tsc"
    type: Literal["tool_search_call"]
    arguments: Any
    call_id: str | None = None
    execution: Literal["server", "client"] | None = None
    status: str | None = None

    def text(self) -> CallText:
        if self.call_id is None:
            return CallText(NAME, _json(self.arguments), "What it found follows.")
        return CallText(NAME, _json(self.arguments), None, self.call_id)

    @staticmethod
    def digested(item: Any) -> tuple[str, ...]:
        return ("tool_search_call", item.call_id or "", canonical(_json(item.arguments)))


class ToolSearchOutput(PastCall):
    """The tools that a search has found."""

    prefix = "tso"
    type: Literal["tool_search_output"]
    tools: ListOf[Tool]
    call_id: str | None = None
    execution: Literal["server", "client"] | None = None
    status: str | None = None

    def text(self) -> CallText:
        found = client_tools(list(flat(self.tools)))
        if self.call_id is None:
            return CallText(NAME, "{}", definitions(found))
        return CallText(None, None, definitions(found), self.call_id)


ITEMS: dict[str, type[PastCall]] = {
    "tool_search_call": ToolSearchCall,
    "tool_search_output": ToolSearchOutput,
}


def _json(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value or {}).decode()


def _begin(call: ActionCall) -> Iterator[e.Event]:
    yield e.OutputItemAdded(call.index, o.OutputToolSearchCall(call.id, call.call_id))


def _end(call: ActionCall, written: str, status: o.Status) -> Iterator[e.Event]:
    item = o.OutputToolSearchCall(call.id, call.call_id, arguments_in(written))
    yield e.OutputItemDone(call.index, replace(item, status=status))


ACTION = Action(
    "tsc",
    lambda tool: getattr(tool, "description", None) or DESCRIPTION,
    PARAMETERS,
    _begin,
    _end,
)


def _call(call: HostedCall, text: str, outcome: Outcome) -> o.OutputHostedToolSearchCall:
    status: o.HostedStatus = "completed" if outcome.status == "failed" else outcome.status
    return o.OutputHostedToolSearchCall(call.id, arguments_in(text), status)


def _result(call: HostedCall, item_id: str, index: int, outcome: Outcome) -> tuple[e.Event, ...]:
    empty = o.OutputToolSearchResult(item_id)
    whole = replace(empty, tools=outcome.details.get("tools", ()), status="completed")
    return (e.OutputItemAdded(index, empty), e.OutputItemDone(index, whole))


def arguments_in(text: str) -> dict[str, Any]:
    """The arguments of a search, as far as they were written."""
    try:
        found = from_json(text or "{}", allow_partial="trailing-strings")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


ROW = Row(
    "tool_search_call",
    "tsc",
    _call,
    lambda item: _json(item.arguments),
    result=_result,
    empty=b"{}",
    channel="commentary",
)
"""Of searches that are made here."""
