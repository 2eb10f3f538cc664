"""Decides what of a response is steered, and whether this engine can do it.

What cannot be honoured is refused here, by name and before any token. Knows accepted requests and
the plans of `harmony/steer/plans.py`; knows no API's words and no concrete engine.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from trt_responses.errors import InvalidRequest, Unsupported
from trt_responses.frozen import dataclass
from trt_responses.harmony.steer.parallel_calls import ParallelCalls
from trt_responses.harmony.steer.plans import (
    Body,
    Budget,
    Free,
    Language,
    Resumed,
    Steered,
    Watched,
)
from trt_responses.response.accepted import ToolChoice
from trt_responses.response.steering.compiling import Turns
from trt_responses.response.steering.tools import is_raw, schema_of
from trt_responses.schema.compile import Allowance, Forms
from trt_responses.schema.matching import Pieces
from trt_responses.schema.normalise import Left
from trt_responses.schema.refusals import InvalidSchema, SlowSchema
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from trt_responses.engine.base import GuideKind
    from trt_responses.harmony.steer.plans import SteeringPlan
    from trt_responses.response.accepted import Accepted, Tool
    from trt_responses.schema.compile import Form
    from trt_responses.tokens.vocabulary import Vocabulary

    Guides = Mapping[GuideKind, frozenset[int]]

ANY_OBJECT = {"type": "object"}
AT_ONCE_BYTES = 512
"""Schemas that are compiled where they are read, in a millisecond or so; larger ones elsewhere."""


@dataclass(frozen=True, slots=True)
class SteeringRequest:
    """What is to be steered. Without headers and strict calls, nothing is."""

    language: Language
    guides: Guides
    headers: Mapping[str, Body] | None
    strict: Mapping[str, Body]
    thought: int | None
    left: tuple[Left, ...] = ()
    """What of the schemas is not followed."""
    begun: tuple[int, ...] = ()
    """What an answer that is not steered begins with."""
    after_tool: Mapping[str, Body] | None = None
    """The headers of a turn that follows a tool's answer: one call is enough for who forces one."""
    without_tools: Mapping[str, Body] | None = None
    """The same, when no tool of the server's may be called any more."""

    def parallel_plan(self, tokens: int, recipients: Collection[str], most: int) -> SteeringPlan:
        """The same, with calls after the first. Where tools are chosen from, only those are."""
        bodies = {recipient: Body((), CONTROL.call) for recipient in recipients}
        if self.headers is not None:
            allowed = {header.partition(" to=")[2].strip(): b for header, b in self.headers.items()}
            bodies = {r: replace(allowed[r], opening=()) for r in bodies if r in allowed}
        bodies |= self.strict.items()
        budget = Budget(tokens, self.thought)
        return ParallelCalls(self.plan(tokens), self.language, self.guides, bodies, most, budget)

    def plan_after_tool(self, tokens: int, written: int, thought: int, spent: bool) -> SteeringPlan:
        """For so many tokens more, behind those that were written and thought, and a tool's answer.
        `spent`: no tool of the server's may be called any more."""
        left = None if self.thought is None else max(0, self.thought - thought)
        headers = self.without_tools if spent else self.after_tool
        later = replace(self, headers=headers, thought=left, begun=())
        return Resumed(later.plan(tokens, written), self.language.assistant)

    def plan(self, tokens: int, written: int = 0) -> SteeringPlan:
        """For so many tokens more, behind those that have been written."""
        budget = Budget(written + tokens, self.thought)
        if self.headers is not None:
            return Steered(self.language, self.guides, self.headers, budget)
        if self.strict:
            return Watched(self.language, self.guides, self.strict, budget)
        return Free(tokens, self.begun)


PIECES = 100_000
"""Tokens of the vocabulary that a matcher takes in one step, the most frequent."""


@lru_cache(maxsize=1)
def _pieces(vocabulary: Vocabulary) -> Pieces:
    return Pieces(vocabulary.token_bytes[:PIECES])


class Steering:
    """Makes steering requests. Holds what is compiled once."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        schema_s: float = 1.0,
        clock_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`schema_s` is what the schemas of one request may take, on the clock of its thread."""
        self._language = Language(vocabulary)
        self._forms = Forms(pieces=_pieces(vocabulary))
        self._schema_s = schema_s
        self._clock_s = clock_s
        self._turns = Turns()

    async def request(self, accepted: Accepted, guides: Guides, owner: str = "") -> SteeringRequest:
        """Raises an `InvalidRequest` for a schema that cannot be followed, and for what this engine
        cannot be guided to. Large schemas are compiled in a thread, so that the loop goes on, and
        owners take turns."""
        if self._unknown_bytes(accepted) <= AT_ONCE_BYTES:
            answer, calls = self._compiled(accepted, guides)
        else:
            async with self._turns.of(owner):
                answer, calls = await asyncio.to_thread(self._compiled, accepted, guides)
        headers = after_tool = without_tools = None
        if accepted.choice.narrows or accepted.answer is not None or accepted.thought is not None:
            headers = self._headers(accepted, accepted.choice, answer, calls)
        if accepted.built_in:
            names = accepted.choice.names
            if headers is not None:
                again = ToolChoice(names, built_in=accepted.choice.built_in)
                after_tool = self._headers(accepted, again, answer, calls)
            if "regex" not in guides:  # one header alone needs none
                names = ()
            without_tools = self._headers(accepted, ToolChoice(names), answer, calls)
        strict = _recipients(accepted, calls) if headers is None else {}
        thought = accepted.thought.tokens if accepted.thought else None
        bodies = strict if headers is None else headers
        left = dict.fromkeys(x for body in bodies.values() if body.form for x in body.form.left)
        if "lark" not in guides:
            what = "is shown to the model and not followed: this engine's guides read no Lark"
            raw = [tool for tool in accepted.tools if is_raw(tool)]
            left |= dict.fromkeys(Left(f"{tool.place}.format", what) for tool in raw)
        wanted = SteeringRequest(
            self._language,
            guides,
            headers,
            strict,
            thought,
            tuple(left),
            tuple(accepted.begun),
            after_tool,
            without_tools,
        )
        _refuse_unguided(wanted, accepted)
        return wanted

    def _compiled(self, accepted: Accepted, guides: Guides) -> tuple[Form | None, dict[str, Body]]:
        """The form of the answer, and what each tool's calls hold: the only place where a schema
        of a request is compiled."""
        allowance = Allowance(self._schema_s, self._clock_s)
        compiled = partial(self._forms.form, allowance=allowance)
        answer = None
        if (asked := accepted.answer) is not None:
            place = f"{asked.place}.schema"
            schema = ANY_OBJECT if asked.schema is None else asked.schema
            answer = compiled(schema, place, strict=asked.strict)
        calls = {}
        for tool in accepted.tools:
            form = None
            opening = self._language.json_message
            if is_raw(tool):
                opening = self._language.message
                if "lark" in guides:
                    form = self._grammar(tool, allowance)
            elif tool.promise is not None:
                form = self._promised(tool, compiled)
            elif _helps(tool, accepted) and "json_schema" in guides:
                form = _as_far(tool, compiled)
            what = f"the {'format' if tool.callee.custom else 'parameters'} of '{tool.name}'"
            calls[tool.name] = Body(opening, CONTROL.call, form, what)
        return answer, calls

    def _promised(self, tool: Tool, compiled: Callable[..., Form]) -> Form:
        """All of the schema, or a refusal."""
        schema, place = schema_of(tool)
        if not tool.callee.custom:
            return compiled(schema, place, strict=True)
        definition = f"{tool.place}.format.definition"
        try:
            return compiled(schema, place, strict=True)
        except SlowSchema:
            raise
        except InvalidSchema as fault:
            why = fault.message.partition("' ")[2].partition(": leave it out")[0].rstrip(".")
            raise _unfollowed(definition, why) from None

    def _grammar(self, tool: Tool, allowance: Allowance) -> Form:
        assert tool.grammar is not None
        place = f"{tool.place}.format.definition"
        try:
            return self._forms.lark(tool.grammar.definition, place, allowance)
        except SlowSchema:
            raise
        except InvalidSchema as fault:
            why = fault.message.partition("' ")[2].rstrip(".")
            raise _unfollowed(place, why) from None

    def _unknown_bytes(self, accepted: Accepted) -> int:
        """How much there is to compile, of whatever worth. An expression may take long, however
        short it is."""
        if any(tool.promise == "format" for tool in accepted.tools):
            return AT_ONCE_BYTES + 1
        return sum(
            self._forms.unknown_bytes(schema, strict=strict)
            for schema, strict in _schemas(accepted)
        )

    def _headers(
        self,
        accepted: Accepted,
        choice: ToolChoice,
        answer: Form | None,
        calls: Mapping[str, Body],
    ) -> dict[str, Body]:
        headers = {}
        if choice.may_answer:
            headers["final"] = Body(
                self._language.message, CONTROL.return_, answer, "the format of the answer"
            )
        for tool in accepted.tools:
            if tool.name in choice.names:
                headers[f"commentary to={tool.recipient} "] = calls[tool.name]
        for built_in in accepted.built_in:
            if built_in.kind in choice.built_in:
                header = f"analysis to={built_in.name} code"
                headers[header] = Body(self._language.message, CONTROL.call)
        return headers


def _as_far(tool: Tool, compiled: Callable[..., Form]) -> Form:
    """As much of a schema as a guide can say, for a call that is forced and whose form is not
    promised. Of what is no schema at all, only that it is an object."""
    try:
        return compiled(*schema_of(tool), strict=False)
    except SlowSchema:
        raise
    except InvalidRequest:
        return compiled(ANY_OBJECT, tool.place)


def _unfollowed(place: str, why: str) -> Unsupported:
    return Unsupported(
        f"Unsupported value for '{place}': {why}. "
        "Leave 'format' out to let the model write any text.",
        param=place,
    )


def _helps(tool: Tool, accepted: Accepted) -> bool:
    """A form, where none is promised: its call is forced, so that the model may not expect it."""
    return accepted.choice.narrows and tool.name in accepted.choice.names


def _schemas(accepted: Accepted) -> Iterator[tuple[Mapping[str, object], bool]]:
    if accepted.answer is not None and accepted.answer.schema is not None:
        yield accepted.answer.schema, accepted.answer.strict
    for tool in accepted.tools:
        if tool.promise is not None or (not tool.callee.custom and _helps(tool, accepted)):
            with suppress(InvalidRequest):
                yield schema_of(tool)[0], tool.promise is not None


def _recipients(accepted: Accepted, calls: Mapping[str, Body]) -> dict[str, Body]:
    """Strict tools, as the model writes them: with their namespace, and without it by mistake."""
    return {
        recipient: replace(calls[tool.name], opening=())
        for tool in accepted.tools
        if tool.promise is not None and calls[tool.name].form is not None
        for recipient in (tool.name, tool.recipient)
    }


def _refuse_unguided(wanted: SteeringRequest, accepted: Accepted) -> None:
    headers, answer, choice = wanted.headers or {}, accepted.answer, accepted.choice
    if len(headers) > 1 and "regex" not in wanted.guides:
        cause = choice if choice.narrows else answer or accepted.thought or choice
        raise _cannot(cause.place, "choose among headers")
    forms = [body for body in (*headers.values(), *wanted.strict.values()) if body.form]
    if forms and "json_schema" not in wanted.guides:
        strict = [
            f"{tool.place}.{tool.promise}"
            for tool in accepted.tools
            if tool.promise and not is_raw(tool)
        ]
        place = answer.place if answer is not None and "final" in headers else strict[0]
        raise _cannot(place, "follow a JSON schema")


def _cannot(param: str, what: str) -> Unsupported:
    return Unsupported(
        f"Unsupported value for '{param}': this engine cannot be guided to {what}.", param=param
    )
