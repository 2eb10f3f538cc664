"""Tools as the model is shown them, and the callees of its calls.

Knows accepted tools; knows no API's words, and no token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trt_responses.accept.accepted import Grammar, Tool
from trt_responses.language.messages import Functions, FunctionTool
from trt_responses.log.item_events import Callee
from trt_responses.wire.known_tools import made_once

WRAPPED: Mapping[str, object] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The arguments of a custom tool as the model writes them: of a function with one string."""
GRAMMARS = {"lark": "a Lark grammar", "regex": "a regular expression"}


@made_once
def shown(tools: Sequence[Tool]) -> Functions:
    """The tools as the prompt tells of them."""
    return Functions(map(_shown, tools))


def _shown(tool: Tool) -> FunctionTool:
    description = "\n".join(filter(None, (tool.description, _language(tool.grammar))))
    return FunctionTool(tool.name, description, _arguments(tool))


def _arguments(tool: Tool) -> Mapping[str, object] | None:
    """The schema of a tool's arguments. A text of a grammar is written as it is; another custom
    tool's as the member of an object."""
    if not tool.callee.custom:
        return tool.parameters
    return None if is_raw(tool) else WRAPPED


def is_raw(tool: Tool) -> bool:
    """Whether the model writes a tool's text as it is: no grammar can be followed inside a JSON
    string."""
    return tool.grammar is not None and tool.grammar.syntax == "lark"


def _language(grammar: Grammar | None) -> str:
    if grammar is None:
        return ""
    raw = "Write the input as it is, not as JSON. " if grammar.syntax == "lark" else ""
    return f"{raw}The input follows {GRAMMARS[grammar.syntax]}:\n{grammar.definition}"


@made_once
def clients_callees(tools: Sequence[Tool]) -> Mapping[str, Callee]:
    """The callees of those that the client runs."""
    return callees([tool for tool in tools if tool.server is None])


def callees(tools: Sequence[Tool]) -> dict[str, Callee]:
    """The tools by their recipients as models write them: with Harmony's namespace, and without it
    by mistake."""
    return {recipient: tool.callee for tool in tools for recipient in (tool.name, tool.recipient)}
