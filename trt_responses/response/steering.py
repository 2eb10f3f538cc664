"""From a request to a plan: what of a response is steered, and whether this engine can do it.

What cannot be honoured is refused here, by name and before any token. Knows the API's words and
the plans of `harmony/steer.py`; knows no concrete engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trt_responses.errors import InvalidRequest, Unsupported
from trt_responses.harmony.render import ResponseFormat
from trt_responses.harmony.schema import ANY_OBJECT, Forms
from trt_responses.harmony.several import Several
from trt_responses.harmony.steer import Body, Budget, Free, Language, Steered, Watched
from trt_responses.harmony.vocabulary import CONTROL
from trt_responses.wire.choice import AllowedTools, JsonObject, NamedTool
from trt_responses.wire.request import FunctionTool, JsonSchema

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trt_responses.engine.base import GuideKind
    from trt_responses.harmony.schema import Form
    from trt_responses.harmony.steer import Plan
    from trt_responses.harmony.vocabulary import Vocabulary
    from trt_responses.wire.request import Request

    Guides = Mapping[GuideKind, frozenset[int]]

MINIMAL_THOUGHT = 64
"""Tokens of a thought at effort `minimal`."""
FORMAT = "text.format"
WRAPPED_TEXT = Forms().form(
    {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    },
    "input",
)
"""The call of a tool that takes a free text: for the model it is a function with one string."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One that the model may call: its recipient, and what its calls hold."""

    name: str
    recipient: str
    place: str
    parameters: Mapping[str, object] | None = None
    strict: bool = False
    is_function: bool = True


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be steered. Without headers and strict calls, nothing is."""

    language: Language
    guides: Guides
    headers: Mapping[str, Body] | None
    strict: Mapping[str, Body]
    thought: int | None

    def several(self, tokens: int, recipients: Collection[str], most: int) -> Plan:
        """The same, with calls after the first. Where tools are chosen from, only those are."""
        bodies = {recipient: Body((), CONTROL.call) for recipient in recipients}
        if self.headers is not None:
            allowed = {header.partition(" to=")[2].strip(): b for header, b in self.headers.items()}
            bodies = {r: replace(allowed[r], opening=()) for r in bodies if r in allowed}
        bodies |= self.strict.items()
        budget = Budget(tokens, self.thought)
        return Several(self.plan(tokens), self.language, self.guides, bodies, most, budget)

    def plan(self, tokens: int) -> Plan:
        budget = Budget(tokens, self.thought)
        if self.headers is not None:
            return Steered(self.language, self.guides, self.headers, budget)
        if self.strict:
            return Watched(self.language, self.guides, self.strict, budget)
        return Free(tokens)


@dataclass(frozen=True, slots=True)
class _Choice:
    """What a tool choice comes to: the tools that may be called, and whether one must be."""

    names: Collection[str]
    may_answer: bool
    narrows: bool


class Steering:
    """Reads wishes out of requests. Holds what is compiled once."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._language = Language(vocabulary)
        self._forms = Forms()

    def wish(self, request: Request, tools: Sequence[Tool], guides: Guides) -> Wish:
        choice = _choice(request, tools)
        answer = self._answer(request)
        thought = _thought(request)
        bodies = {tool.name: self._call(tool, choice.narrows, guides) for tool in tools}
        headers = None
        if choice.narrows or answer is not None or thought is not None:
            headers = self._headers(tools, bodies, choice, answer)
        strict = _recipients(tools, bodies) if headers is None else {}
        wish = Wish(self._language, guides, headers, strict, thought)
        _refuse_unguided(wish, request, choice, tools)
        return wish

    def _headers(
        self,
        tools: Sequence[Tool],
        bodies: Mapping[str, Body],
        choice: _Choice,
        answer: Form | None,
    ) -> dict[str, Body]:
        headers = {}
        if choice.may_answer:
            headers["final"] = Body(
                self._language.message, CONTROL.return_, answer, "the format of the answer"
            )
        for tool in tools:
            if tool.name in choice.names:
                headers[f"commentary to={tool.recipient} "] = bodies[tool.name]
        return headers

    def _answer(self, request: Request) -> Form | None:
        asked = request.text.format if request.text else None
        if isinstance(asked, JsonSchema):
            return self._forms.form(asked.schema_, f"{FORMAT}.schema")
        return ANY_OBJECT if isinstance(asked, JsonObject) else None

    def _call(self, tool: Tool, forced: bool, guides: Guides) -> Body:
        """A strict tool's form is promised; another's only helps, where the engine can."""
        form = None
        if not tool.is_function:
            form = WRAPPED_TEXT if forced and "json_schema" in guides else None
        elif tool.strict:
            form = self._parameters(tool)
        elif forced and "json_schema" in guides:
            try:
                form = self._parameters(tool)
            except InvalidRequest:
                form = ANY_OBJECT
        what = f"the parameters of '{tool.name}'"
        return Body(self._language.json_message, CONTROL.call, form, what)

    def _parameters(self, tool: Tool) -> Form:
        if tool.parameters is None:
            return ANY_OBJECT
        place = f"{tool.place}.parameters"
        if tool.parameters and tool.parameters.get("type") != "object":
            raise InvalidRequest(
                f"Invalid schema: '{place}.type' must be 'object', as arguments are one.",
                param=f"{place}.type",
                code="invalid_json_schema",
            )
        return self._forms.form(tool.parameters or {"type": "object"}, place)


def response_format(request: Request) -> ResponseFormat | None:
    """The answer's form, as the model is told of it."""
    asked = request.text.format if request.text else None
    if isinstance(asked, JsonSchema):
        return ResponseFormat(asked.name, asked.description, asked.schema_)
    if isinstance(asked, JsonObject):
        return ResponseFormat("json_object", "A JSON object.", {"type": "object"})
    return None


def _choice(request: Request, tools: Sequence[Tool]) -> _Choice:
    names = [tool.name for tool in tools]
    match request.tool_choice:
        case None | "auto":
            return _Choice(names, True, False)
        case "none":
            return _Choice((), True, bool(names))
        case "required":
            if not names:
                raise _unknown("tool_choice", "'required' needs tools to choose from")
            return _Choice(names, False, True)
        case NamedTool() as tool:
            _check_named(tool, tools, "tool_choice")
            return _Choice({tool.name}, False, True)
        case AllowedTools() as allowed:
            for place, tool in enumerate(allowed.tools):
                _check_named(tool, tools, f"tool_choice.tools[{place}]")
            chosen = {tool.name for tool in allowed.tools}
            return _Choice(chosen, allowed.mode == "auto", True)


def _check_named(asked: NamedTool, tools: Sequence[Tool], place: str) -> None:
    kinds = {(tool.name, tool.is_function) for tool in tools}
    if (asked.name, asked.type == "function") not in kinds:
        raise _unknown(f"{place}.name", f"no {asked.type} tool of the request is '{asked.name}'")


def _unknown(param: str, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid value for '{param}': {what}.", param=param, code="invalid_value"
    )


def _thought(request: Request) -> int | None:
    """The bound of the thought; None where there is none, 0 where there is no thought."""
    asked = request.reasoning
    if asked is None:
        return None
    by_effort = {"none": 0, "minimal": MINIMAL_THOUGHT}.get(asked.effort or "")
    bounds = [bound for bound in (by_effort, asked.max_tokens) if bound is not None]
    return min(bounds, default=None)


def _recipients(tools: Sequence[Tool], bodies: Mapping[str, Body]) -> dict[str, Body]:
    """Strict tools, as the model writes them: with their namespace, and without it by mistake."""
    return {
        recipient: replace(bodies[tool.name], opening=())
        for tool in tools
        if tool.strict
        for recipient in (tool.name, tool.recipient)
    }


def _refuse_unguided(wish: Wish, request: Request, choice: _Choice, tools: Sequence[Tool]) -> None:
    headers = wish.headers or {}
    if len(headers) > 1 and "regex" not in wish.guides:
        raise _cannot(_cause(request, choice), "choose among headers")
    forms = [body for body in (*headers.values(), *wish.strict.values()) if body.form]
    if forms and "json_schema" not in wish.guides:
        strict = [tool.place for tool in tools if tool.strict]
        answers = "final" in headers and headers["final"].form is not None
        raise _cannot(FORMAT if answers else f"{strict[0]}.strict", "follow a JSON schema")


def _cause(request: Request, choice: _Choice) -> str:
    if choice.narrows:
        return "tool_choice"
    if request.text is not None and not _is_plain(request):
        return FORMAT
    effort = request.reasoning.effort if request.reasoning else None
    return "reasoning.effort" if effort in ("none", "minimal") else "reasoning.max_tokens"


def _is_plain(request: Request) -> bool:
    asked = request.text.format if request.text else None
    return not isinstance(asked, JsonSchema | JsonObject)


def _cannot(param: str, what: str) -> Unsupported:
    return Unsupported(
        f"Unsupported value for '{param}': this engine cannot be guided to {what}.", param=param
    )


def tool_of(tool: FunctionTool, recipient: str, place: int) -> Tool:
    return Tool(tool.name, recipient, f"tools[{place}]", tool.parameters, tool.strict is True)
