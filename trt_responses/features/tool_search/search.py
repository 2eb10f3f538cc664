"""The server's own search for deferred tools, as a tool that is called in a response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trt_responses.accept.accepted import Tool
from trt_responses.features.tool_search.calls import arguments_in
from trt_responses.features.tool_search.items import NAME
from trt_responses.features.tool_search.texts import FOUND, definitions, index
from trt_responses.tool import Recipient, ToolAnswer, ToolCall

MOST = 20
"""Tools that one search may find."""


class Search:
    """Finds the tools of one request, as a tool and its session in one."""

    name, deadline_s = NAME, 10.0
    recipients: Mapping[str, Recipient] = {NAME: Recipient(NAME)}

    def __init__(self, tools: Sequence[Tool], sent: Sequence[Mapping[str, Any]]) -> None:
        """`sent`: the same tools as the client has sent them."""
        self.tools = tools
        self.sent = sent

    async def call(self, call: ToolCall) -> ToolAnswer:
        arguments = arguments_in(call.text)
        query, limit = arguments.get("query"), arguments.get("limit", FOUND)
        if not isinstance(query, str):
            return ToolAnswer("Give a 'query': words that say what the tool does.", failed=True)
        most = min(limit, MOST) if isinstance(limit, int) else FOUND
        found = index(self.tools).find(query, most)
        names = {(t.callee.namespace, t.callee.name) for t in found if t.server is None}
        tools = (*_named(self.sent, names), *_of_servers(found))
        return ToolAnswer(definitions(found), details={"tools": tools})

    async def close(self) -> None:
        """Do nothing: nothing is kept."""


def _named(
    sent: Iterable[Mapping[str, Any]], names: set[tuple[str | None, str]]
) -> Iterable[Mapping[str, Any]]:
    """The tools of these names, as the client has sent them; a namespace with those alone."""
    for tool in sent:
        if tool["type"] == "namespace":
            inner = [one for one in tool["tools"] if (tool["name"], one["name"]) in names]
            if inner:
                yield {**tool, "tools": inner}
        elif (None, tool.get("name")) in names:
            yield tool


def _of_servers(found: Iterable[Tool]) -> Iterable[Mapping[str, Any]]:
    """Tools of MCP servers, as namespaces of functions."""
    servers: dict[str, list[Mapping[str, Any]]] = {}
    for tool in found:
        if (label := tool.server) is not None:
            function = {
                "type": "function",
                "name": tool.name.removeprefix(f"{label}__"),
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
                "defer_loading": True,
            }
            servers.setdefault(label, []).append(function)
    for label, functions in servers.items():
        yield {"type": "namespace", "name": label, "description": "", "tools": functions}
