"""The schema of what a model writes to call a tool. Knows accepted tools."""

from __future__ import annotations

from collections.abc import Mapping

from trt_responses.accept.accepted import Tool
from trt_responses.errors import InvalidRequest
from trt_responses.steering.tools import WRAPPED


def schema_of(tool: Tool) -> tuple[Mapping[str, object], str]:
    """The schema of a tool's calls, and where in the request it stands. Raises `InvalidRequest`
    for a function whose arguments are no object."""
    place = f"{tool.place}.parameters"
    if tool.callee.custom:
        if tool.grammar is None:
            return WRAPPED, place
        text = {"type": "string", "pattern": anchored(tool.grammar.definition)}
        return {**WRAPPED, "properties": {"input": text}}, place
    if tool.parameters and tool.parameters.get("type") != "object":
        raise InvalidRequest(
            f"Invalid schema: '{place}.type' must be 'object', as arguments are one.",
            param=f"{place}.type",
            code="invalid_json_schema",
        )
    return tool.parameters or {"type": "object"}, place


def anchored(expression: str) -> str:
    """A pattern for the whole of a text, from an expression that may be anchored or not."""
    inner = expression.removeprefix("^")
    bare = inner.removesuffix("$")
    if (len(bare) - len(bare.rstrip("\\"))) % 2:
        bare = inner
    return f"^(?:{bare})$" if "|" in bare else f"^{bare}$"
