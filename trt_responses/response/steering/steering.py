"""From a request to a plan: what of a response is steered, and whether this engine can do it.

What cannot be honoured is refused here, by name and before any token. Knows the API's words and
the plans of `harmony/steer/plans.py`; knows no concrete engine.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from trt_responses.errors import InvalidRequest, Unsupported
from trt_responses.frozen import dataclass
from trt_responses.harmony.keywords import Allowance, SlowSchema
from trt_responses.harmony.schema import ANY_OBJECT, Forms
from trt_responses.harmony.steer.parallel_calls import Several
from trt_responses.harmony.steer.plans import Body, Budget, Free, Language, Steered, Watched
from trt_responses.harmony.write.preface import ResponseFormat
from trt_responses.response.steering.tool_choice import choice_of, parameters_of, tool_of
from trt_responses.response.steering.tools import offered, wrapped
from trt_responses.tokens.vocabulary import CONTROL
from trt_responses.wire.choice import JsonObject
from trt_responses.wire.request import JsonSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from trt_responses.engine.base import GuideKind
    from trt_responses.harmony.schema import Form
    from trt_responses.harmony.steer.plans import Plan
    from trt_responses.response.steering.tool_choice import Choice, Tool
    from trt_responses.tokens.vocabulary import Vocabulary
    from trt_responses.wire.request import Request

    Compiled = Callable[[Mapping[str, object], str], Form]
    """The form of the schema that stands there."""
    Guides = Mapping[GuideKind, frozenset[int]]

MINIMAL_THOUGHT = 64
"""Tokens of a thought at effort `minimal`."""
FORMAT = "text.format"
FORMAT_SCHEMA = f"{FORMAT}.schema"
WRAPPED_TEXT = Forms().form(wrapped(), "input")
"""The call of a tool that takes a free text."""
AT_ONCE_BYTES = 1024
"""Schemas that are compiled where they are read, in a millisecond or so; larger ones elsewhere."""


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


class Steering:
    """Reads wishes out of requests. Holds what is compiled once."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        schema_s: float = 1.0,
        clock_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`schema_s` is what the schemas of one request may take, on the clock of its thread."""
        self._language = Language(vocabulary)
        self._forms = Forms()
        self._schema_s = schema_s
        self._clock_s = clock_s
        self._elsewhere = asyncio.Semaphore(1)

    async def wish(self, request: Request, guides: Guides) -> Wish:
        """What `wished` says. Large schemas are compiled in a thread, so that the loop goes on; in
        one, for each that computes takes its turns from the loop."""
        if not (request.tools or request.tool_choice or request.text or request.reasoning):
            return Wish(self._language, guides, None, {}, None)
        tools = [tool_of(placed) for placed in offered(request)]
        choice = choice_of(request, tools)
        schemas = _schemas(request, tools, choice)
        if sum(self._forms.unknown_bytes(*schema) for schema in schemas) > AT_ONCE_BYTES:
            async with self._elsewhere:
                return await asyncio.to_thread(self._wished, request, tools, choice, guides)
        return self._wished(request, tools, choice, guides)

    def wished(self, request: Request, guides: Guides) -> Wish:
        tools = [tool_of(placed) for placed in offered(request)]
        return self._wished(request, tools, choice_of(request, tools), guides)

    def _wished(
        self, request: Request, tools: Sequence[Tool], choice: Choice, guides: Guides
    ) -> Wish:
        compiled = partial(self._forms.form, allowance=Allowance(self._schema_s, self._clock_s))
        answer = _answer(request, compiled)
        thought = _thought(request)
        bodies = {tool.name: self._call(tool, choice, guides, compiled) for tool in tools}
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
        choice: Choice,
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

    def _call(self, tool: Tool, choice: Choice, guides: Guides, compiled: Compiled) -> Body:
        """The form of a strict tool's calls is promised; another's only helps, where it can."""
        form = None
        if tool.promise is not None:
            form = compiled(*parameters_of(tool))
        elif _helps(tool, choice) and "json_schema" in guides:
            try:
                form = compiled(*parameters_of(tool)) if tool.is_function else WRAPPED_TEXT
            except SlowSchema:
                raise
            except InvalidRequest:
                form = ANY_OBJECT
        what = f"the {'parameters' if tool.is_function else 'format'} of '{tool.name}'"
        return Body(self._language.json_message, CONTROL.call, form, what)


def _helps(tool: Tool, choice: Choice) -> bool:
    """A form, where none is promised: its call is forced, so that the model may not expect it."""
    return choice.narrows and tool.name in choice.names


def _answer(request: Request, compiled: Compiled) -> Form | None:
    asked = request.text.format if request.text else None
    if isinstance(asked, JsonSchema):
        return compiled(asked.schema_, FORMAT_SCHEMA)
    return ANY_OBJECT if isinstance(asked, JsonObject) else None


def _schemas(
    request: Request, tools: Sequence[Tool], choice: Choice
) -> Iterator[tuple[Mapping[str, object], str]]:
    """All that are to be compiled, of whatever size and worth."""
    asked = request.text.format if request.text else None
    if isinstance(asked, JsonSchema):
        yield asked.schema_, FORMAT_SCHEMA
    for tool in tools:
        if tool.promise is not None or (tool.is_function and _helps(tool, choice)):
            with suppress(InvalidRequest):
                yield parameters_of(tool)


def response_format(request: Request) -> ResponseFormat | None:
    """The answer's form, as the model is told of it."""
    asked = request.text.format if request.text else None
    if isinstance(asked, JsonSchema):
        return ResponseFormat(asked.name, asked.description, asked.schema_)
    if isinstance(asked, JsonObject):
        return ResponseFormat("json_object", "A JSON object.", {"type": "object"})
    return None


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
        if tool.promise is not None
        for recipient in (tool.name, tool.recipient)
    }


def _refuse_unguided(wish: Wish, request: Request, choice: Choice, tools: Sequence[Tool]) -> None:
    headers = wish.headers or {}
    if len(headers) > 1 and "regex" not in wish.guides:
        raise _cannot(_cause(request, choice), "choose among headers")
    forms = [body for body in (*headers.values(), *wish.strict.values()) if body.form]
    if forms and "json_schema" not in wish.guides:
        strict = [f"{tool.place}.{tool.promise}" for tool in tools if tool.promise]
        answers = "final" in headers and headers["final"].form is not None
        raise _cannot(FORMAT if answers else strict[0], "follow a JSON schema")


def _cause(request: Request, choice: Choice) -> str:
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
