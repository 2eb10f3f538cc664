"""Which of a request's tools may be called, and what their calls hold.

Knows the API's words; knows no engine and no plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.errors import InvalidRequest, Unsupported
from trt_responses.frozen import dataclass
from trt_responses.harmony.pattern import UnsafePattern, anchored
from trt_responses.harmony.write.conversation import FUNCTIONS
from trt_responses.response.steering.tools import wrapped
from trt_responses.wire import tools as t
from trt_responses.wire.choice import AllowedTools, NamedTool

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trt_responses.wire.request import Request


@dataclass(frozen=True, slots=True)
class Tool:
    """One that the model may call: its recipient, and what its calls hold."""

    name: str
    recipient: str
    place: str
    parameters: Mapping[str, object] | None = None
    promise: str | None = None
    """The field by which its calls' form is promised, whoever chooses them."""
    is_function: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """What a tool choice comes to: the tools that may be called, and whether one must be."""

    names: Collection[str]
    may_answer: bool
    narrows: bool


def tool_of(placed: t.Placed) -> Tool:
    tool = placed.tool
    recipient = FUNCTIONS + placed.name
    if isinstance(tool, t.FunctionTool):
        promise = "strict" if tool.strict else None
        return Tool(placed.name, recipient, placed.place, tool.parameters, promise)
    pattern = _pattern(tool, placed.place)
    promise = "format" if pattern else None
    return Tool(placed.name, recipient, placed.place, wrapped(pattern), promise, is_function=False)


def _pattern(tool: t.CustomTool, place: str) -> str | None:
    """A regular expression says what the whole text is, with or without anchors."""
    if not isinstance(tool.format, t.GrammarInput) or tool.format.syntax != "regex":
        return None
    try:
        return anchored(tool.format.definition)
    except UnsafePattern as error:
        raise Unsupported(
            f"Unsupported value for '{place}.format.definition': it cannot be followed: {error}. "
            "Leave 'format' out to let the model write any text.",
            param=f"{place}.format.definition",
        ) from None


def parameters_of(tool: Tool) -> tuple[Mapping[str, object], str]:
    """What a tool's calls hold, and where in the request it stands."""
    place = f"{tool.place}.parameters"
    if tool.parameters and tool.parameters.get("type") != "object":
        raise InvalidRequest(
            f"Invalid schema: '{place}.type' must be 'object', as arguments are one.",
            param=f"{place}.type",
            code="invalid_json_schema",
        )
    return tool.parameters or {"type": "object"}, place


def choice_of(request: Request, tools: Sequence[Tool]) -> Choice:
    names = [tool.name for tool in tools]
    match request.tool_choice:
        case None | "auto":
            return Choice(names, True, False)
        case "none":
            return Choice((), True, bool(names))
        case "required":
            if not names:
                raise _unknown("tool_choice", "'required' needs tools to choose from")
            return Choice(names, False, True)
        case NamedTool() as tool:
            _check_named(tool, tools, "tool_choice")
            return Choice({tool.name}, False, True)
        case AllowedTools() as allowed:
            for place, tool in enumerate(allowed.tools):
                _check_named(tool, tools, f"tool_choice.tools[{place}]")
            chosen = {tool.name for tool in allowed.tools}
            return Choice(chosen, allowed.mode == "auto", True)


def _check_named(asked: NamedTool, tools: Sequence[Tool], place: str) -> None:
    kinds = {(tool.name, tool.is_function) for tool in tools}
    if (asked.name, asked.type == "function") not in kinds:
        raise _unknown(f"{place}.name", f"no {asked.type} tool of the request is '{asked.name}'")


def _unknown(param: str, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid value for '{param}': {what}.", param=param, code="invalid_value"
    )
