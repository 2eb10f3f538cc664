"""Items of tool searches that a client brings back, and the tool as the model is shown it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from trt_responses.accept.tools import client_tools
from trt_responses.features.tool_search.texts import definitions
from trt_responses.log.action_calls import Action
from trt_responses.wire.base import ListOf
from trt_responses.wire.past_calls import CallText, PastCall, canonical
from trt_responses.wire.tools import Tool, ToolSearchTool, flat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.wire.tools import ActionTool

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


def _description(tool: ActionTool) -> str:
    own = tool.description if isinstance(tool, ToolSearchTool) else None
    return own or DESCRIPTION


def _parameters(tool: ActionTool) -> Mapping[str, object]:
    own = tool.parameters if isinstance(tool, ToolSearchTool) else None
    return own or PARAMETERS


ACTION = Action(_description, _parameters, strict=False)
