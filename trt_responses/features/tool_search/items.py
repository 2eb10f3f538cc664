"""Items of tool searches that a client brings back, and the tool as the model is shown it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from trt_responses.accept.tools import client_tools
from trt_responses.features.tool_search.texts import definitions
from trt_responses.wire.base import ListOf
from trt_responses.wire.past_calls import CallText, PastCall, canonical
from trt_responses.wire.tools import FolderTool, Schema, Tool, flat

NAME: Final = "tool_search"
DESCRIPTION = "Searches for tools that are not loaded yet, by what they do."
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string"}},
    "required": ["query"],
    "additionalProperties": False,
}


class ToolSearchTool(FolderTool):
    """A search for tools that are deferred: the client's, or this server's."""

    type: Literal["tool_search"]
    execution: Literal["server", "client"] | None = None
    description: str | None = None
    parameters: Schema | None = None
    guided = False

    def shown(self) -> tuple[str, Mapping[str, object]]:
        return self.description or DESCRIPTION, self.parameters or PARAMETERS


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
    if isinstance(value, str):
        return value
    # orjson writes no integer beyond 64 bits, and a client may send one
    return json.dumps(value or {}, ensure_ascii=False, separators=(",", ":"))
