"""Tools as the model is shown them, and the schema of what it writes to call one.

Knows accepted tools; knows no API's words, and no token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.errors import InvalidRequest, Unsupported
from trt_responses.harmony.pattern import UnsafePattern, anchored
from trt_responses.harmony.write.preface import FunctionTool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.response.accepted import Grammar, Tool
    from trt_responses.response.log.item_events import Callee

GRAMMARS = {"lark": "a Lark grammar", "regex": "a regular expression"}


def wrapped(pattern: str | None = None) -> Mapping[str, object]:
    """A text as the model writes it: for it, a custom tool is a function with one string."""
    return {
        "type": "object",
        "properties": {"input": {"type": "string"} | ({"pattern": pattern} if pattern else {})},
        "required": ["input"],
        "additionalProperties": False,
    }


def shown(tools: Sequence[Tool]) -> tuple[FunctionTool, ...]:
    """Tools as the prompt tells of them."""
    return tuple(
        FunctionTool(
            tool.name,
            "\n".join(filter(None, (tool.description, _language(tool.grammar)))),
            wrapped() if tool.callee.custom else tool.parameters,
        )
        for tool in tools
    )


def _language(grammar: Grammar | None) -> str:
    if grammar is None:
        return ""
    return f"The input follows {GRAMMARS[grammar.syntax]}:\n{grammar.definition}"


def callees(tools: Sequence[Tool]) -> dict[str, Callee]:
    """Recipients as the model writes them: with Harmony's namespace, and without it by mistake."""
    return {recipient: tool.callee for tool in tools for recipient in (tool.name, tool.recipient)}


def schema_of(tool: Tool) -> tuple[Mapping[str, object], str]:
    """The schema of a tool's calls, and where in the request it stands. Raises `InvalidRequest`
    for a function whose arguments are no object, and for an expression that cannot be followed."""
    place = f"{tool.place}.parameters"
    if tool.callee.custom:
        regex = tool.grammar is not None and tool.grammar.syntax == "regex"
        return wrapped(_pattern(tool) if regex else None), place
    if tool.parameters and tool.parameters.get("type") != "object":
        raise InvalidRequest(
            f"Invalid schema: '{place}.type' must be 'object', as arguments are one.",
            param=f"{place}.type",
            code="invalid_json_schema",
        )
    return tool.parameters or {"type": "object"}, place


def _pattern(tool: Tool) -> str:
    """A regular expression says what the whole text is, with or without anchors."""
    assert tool.grammar is not None
    try:
        return anchored(tool.grammar.definition)
    except UnsafePattern as error:
        place = f"{tool.place}.format.definition"
        raise Unsupported(
            f"Unsupported value for '{place}': it cannot be followed: {error}. "
            "Leave 'format' out to let the model write any text.",
            param=place,
        ) from None
