"""The tools of a request as the model is shown them, and its calls as the client knows them.

Knows the API's tools; knows no token, and not what a call is steered to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trt_responses.harmony.write.conversation import FUNCTIONS
from trt_responses.harmony.write.preface import FunctionTool
from trt_responses.response.log.machine import Callee
from trt_responses.wire import tools as t

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.wire.request import Request

GRAMMARS = {"lark": "a Lark grammar", "regex": "a regular expression"}


def offered(request: Request) -> list[t.Placed]:
    """The tools that the model may call."""
    return list(t.flat(request.tools)) if request.tools else []


def offers(request: Request) -> bool:
    """Whether there are any."""
    return any(True for _ in t.flat(request.tools or ()))


def dropped(request: Request) -> list[str]:
    """The kinds of tools that somebody else would run, and nobody does."""
    return [tool.type for tool in request.tools or () if isinstance(tool, t.OtherTool)]


def parameters(tool: t.FunctionTool | t.CustomTool) -> Mapping[str, Any] | None:
    """What a call holds; of a custom tool's, its one text."""
    return tool.parameters if isinstance(tool, t.FunctionTool) else wrapped()


def wrapped(pattern: str | None = None) -> Mapping[str, Any]:
    """A text as the model writes it: for it, a custom tool is a function with one string."""
    return {
        "type": "object",
        "properties": {"input": {"type": "string"} | ({"pattern": pattern} if pattern else {})},
        "required": ["input"],
        "additionalProperties": False,
    }


def shown(tools: list[t.Placed]) -> tuple[FunctionTool, ...]:
    """Tools as the prompt tells of them. A namespace is described with the first of its tools."""
    told: set[str] = set()
    functions = []
    for placed in tools:
        texts = [placed.tool.description or "", _form(placed.tool)]
        space = placed.namespace
        if space is not None and space.name not in told:
            told.add(space.name)
            texts.insert(0, space.description or "")
        text = "\n".join(filter(None, texts))
        functions.append(FunctionTool(placed.name, text, parameters(placed.tool)))
    return tuple(functions)


def callees(tools: list[t.Placed]) -> dict[str, Callee]:
    """Recipients as the model writes them: with Harmony's namespace, and without it by mistake."""
    found = {}
    for placed in tools:
        callee = Callee(
            placed.tool.name,
            None if placed.namespace is None else placed.namespace.name,
            custom=isinstance(placed.tool, t.CustomTool),
        )
        found[placed.name] = found[FUNCTIONS + placed.name] = callee
    return found


def _form(tool: t.FunctionTool | t.CustomTool) -> str:
    form = tool.format if isinstance(tool, t.CustomTool) else None
    if not isinstance(form, t.GrammarInput):
        return ""
    return f"The input follows {GRAMMARS[form.syntax]}:\n{form.definition}"
