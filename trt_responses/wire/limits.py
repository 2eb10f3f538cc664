"""How much one request may hold: the one place for these bounds.

Bytes and values are counted before a body is parsed, entries of lists before they are read. Knows
no HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trt_responses.errors import invalid_value
from trt_responses.frozen import dataclass
from trt_responses.wire.known_tools import made_once


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds of one request. Parsing holds the event loop, and its price is bytes and values."""

    body_bytes: int = 4 * 1024 * 1024
    body_values: int = 64_000
    tools: int = 1024
    input: int = 10_000

    def check(self, sent: Mapping[str, Any]) -> None:
        """Raise an `InvalidRequest` for the first list or map of a body that is too long."""
        _check("input", sent.get("input"), self.input)
        _check("messages", sent.get("messages"), self.input)
        if tools := sent.get("tools"):
            _check("tools", tools, self.tools)
        if isinstance(tools, list):
            _check("tools", _flat(tools), self.tools)
        if isinstance(choice := sent.get("tool_choice"), dict):
            _check("tool_choice.tools", choice.get("tools"), self.tools)
            if isinstance(allowed := choice.get("allowed_tools"), dict):
                _check("tool_choice.allowed_tools.tools", allowed.get("tools"), self.tools)


@made_once
def _flat(tools: list[Any]) -> list[Any]:
    """The tools that the model sees: those of a namespace instead of the namespace."""
    flat: list[Any] = []
    for tool in tools:
        inner = tool.get("tools") if isinstance(tool, dict) else getattr(tool, "tools", None)
        flat += inner if isinstance(inner, list) else (tool,)
    return flat


def _check(param: str, value: Any, at_most: int) -> None:
    if isinstance(value, list | dict) and len(value) > at_most:
        raise invalid_value(
            param,
            f"{at_most} entries at most, got {len(value)}",
            code="too_many_entries",
        )
