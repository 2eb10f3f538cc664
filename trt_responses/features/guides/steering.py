"""Guides of answers and calls: compiles their schemas, and refuses what this engine cannot follow.

What cannot be honoured is refused by name and before any token. Knows accepted requests and what a
turn may be; knows no API's words and no concrete engine.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from trt_responses.accept.accepted import ToolChoice
from trt_responses.errors import InvalidRequest, Unsupported, unsupported_value
from trt_responses.features.guides.harmony_turns import steer
from trt_responses.features.guides.schemas import schema_of
from trt_responses.frozen import dataclass
from trt_responses.harmony.dialect import Harmony
from trt_responses.language.steering import Choice, Turn, Unguided
from trt_responses.schema.compile import Allowance, Forms
from trt_responses.schema.judge import Judge
from trt_responses.schema.matching import Expressions, pieces_of
from trt_responses.schema.normalise import Left
from trt_responses.schema.refusals import InvalidSchema, SlowSchema
from trt_responses.schema.turns import Turns
from trt_responses.steering.steering import Steering, SteeringRequest, calls_of, promising
from trt_responses.steering.tools import is_raw, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from trt_responses.accept.accepted import Accepted, Tool
    from trt_responses.dialect import Dialect
    from trt_responses.language.steering import Guides
    from trt_responses.schema.compile import Form

ANY_OBJECT = {"type": "object"}
ANY_JSON = Judge({}, Expressions())
AT_ONCE_BYTES = 512
"""The largest schemas that are compiled at once, which takes about a millisecond; larger ones are
compiled in a thread."""


@dataclass(frozen=True, slots=True)
class GuidedRequest(SteeringRequest):
    """The steering of a request with guides."""

    after_tool: Sequence[Choice] | None = None
    """The choices of a turn that follows a tool's answer: one call is enough for a request that
    forces one."""
    without_tools: Sequence[Choice] | None = None
    """The same, when no tool of the server's may be called any more."""

    def turn_after_tool(self, thought: int, spent: bool) -> Turn:
        wanted = self.turn.thought
        left = None if wanted is None else max(0, wanted - thought)
        choices = self.without_tools if spent else self.after_tool
        return replace(self.turn, choices=choices, thought=left, begun=())


class GuidedSteering(Steering):
    """Makes steering requests with guides, and keeps what was compiled."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        schema_s: float = 1.0,
        clock_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`schema_s` is the time that the schemas of one request may take, on the clock of its
        thread."""
        super().__init__(dialect)
        if isinstance(dialect, Harmony) and dialect.steered is None:
            steer(dialect)
        self._forms = Forms(pieces=pieces_of(dialect.lexicon.token_bytes))
        self._schema_s = schema_s
        self._clock_s = clock_s
        self._turns = Turns()

    async def _guided(self, accepted: Accepted, guides: Guides, owner: str) -> SteeringRequest:
        """Raises an `InvalidRequest` for a schema that cannot be followed, and for what this engine
        cannot be guided to. Large schemas are compiled in a thread, so that the loop goes on, and
        owners take turns."""
        if self._unknown_bytes(accepted) <= AT_ONCE_BYTES:
            answer, calls = self._compiled(accepted, guides)
        else:
            async with self._turns.of(owner):
                answer, calls = await asyncio.to_thread(self._compiled, accepted, guides)
        choices = after_tool = without_tools = None
        if accepted.choice.narrows or accepted.answer or accepted.thought:
            choices = after_tool = _choices(accepted, accepted.choice, answer, calls)
        if accepted.built_in:
            names = accepted.choice.names
            ours = {tool.name for tool in accepted.tools if tool.server is not None}
            left_names = [name for name in names if name not in ours]
            if "regex" not in guides:  # one header alone needs none
                left_names = []
            without_tools = _choices(accepted, ToolChoice(left_names), answer, calls)
            if choices is not None and "regex" in guides:
                again = ToolChoice(names, built_in=accepted.choice.built_in)
                after_tool = _choices(accepted, again, answer, calls)
            elif choices is not None:
                after_tool = without_tools
        strict = _strict(accepted, calls) if choices is None else []
        thought = accepted.thought.tokens if accepted.thought else None
        followed = strict if choices is None else choices
        theirs = tuple(tool.place for tool in accepted.tools if tool.server is not None)
        left = dict.fromkeys(
            part
            for choice in followed
            if choice.form
            for part in choice.form.left
            if not (theirs and part.place.startswith(theirs))
        )
        if "lark" not in guides:
            what = "is shown to the model and not followed: this engine's guides read no Lark"
            raw = [tool for tool in accepted.tools if is_raw(tool)]
            left |= dict.fromkeys(Left(f"{tool.place}.format", what) for tool in raw)
        offered = tuple(calls.values())
        turn = Turn(choices, strict, thought, offered, tuple(accepted.begun))
        wanted = GuidedRequest(self._dialect, guides, turn, tuple(left), after_tool, without_tools)
        _refuse_unguided(wanted, accepted)
        return wanted

    def _compiled(
        self, accepted: Accepted, guides: Guides
    ) -> tuple[Form | None, dict[str, Choice]]:
        """The form of the answer, and of each tool's calls: the only place where a schema of a
        request is compiled."""
        allowance = Allowance(self._schema_s, self._clock_s)
        compiled = partial(self._forms.form, allowance=allowance)
        answer = None
        if (wanted := accepted.answer) is not None and wanted.grammar is not None:
            answer = self._forms.lark(wanted.grammar, wanted.place, allowance)
        elif wanted is not None:
            place = f"{wanted.place}.schema"
            schema = ANY_OBJECT if wanted.schema is None else wanted.schema
            answer = compiled(schema, place, strict=wanted.strict)
        calls = dict(calls_of(accepted.tools))
        for tool in _with_forms(accepted):
            form = None
            if is_raw(tool):
                if "lark" in guides:
                    form = self._grammar(tool, allowance)
            elif tool.promise is not None:
                form = self._promised(tool, compiled)
            elif tool.server is not None and "json_schema" in guides:
                form = _of_server(tool, compiled)
            elif _helps(tool, accepted) and "json_schema" in guides:
                form = _as_far(tool, compiled)
            if form is not None and not is_raw(tool):
                form = self._as_written(form, tool, guides, allowance)
            if form is not None:
                calls[tool.name] = replace(calls[tool.name], form=form)
        return answer, calls

    def _promised(self, tool: Tool, compiled: Callable[..., Form]) -> Form:
        """The form of a tool's calls with all of its schema. Raises when that cannot be
        followed."""
        try:
            return compiled(*schema_of(tool), strict=True)
        except InvalidSchema as fault:
            if not tool.callee.custom or isinstance(fault, SlowSchema):
                raise
            why = fault.message.partition("' ")[2].partition(": leave it out")[0].rstrip(".")
            raise _unfollowed(f"{tool.place}.format.definition", why) from None

    def _as_written(
        self, form: Form, tool: Tool, guides: Guides, allowance: Allowance
    ) -> Form | None:
        """The form as the dialect writes arguments; None where it cannot and none is promised."""
        place = f"{tool.place}.{tool.promise}"
        try:
            written = self._dialect.arguments(form, *shown([tool]))
        except Unguided as fault:
            if tool.promise is None:
                return None
            raise unsupported_value(
                place,
                f"the arguments of '{tool.name}' cannot be guided, for {fault} (the model's "
                f"dialect is '{self._dialect.name}')",
            ) from None
        allowance.check(tool.place)
        if written.kind == "lark" and "lark" not in guides:
            if tool.promise is None:
                return None
            raise _cannot(place, f"write arguments as '{self._dialect.name}' does")
        return written

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
        """How much there is to compile, whatever it is worth. An expression may take long, however
        short it is."""
        in_lark = accepted.answer is not None and accepted.answer.grammar is not None
        if in_lark or any(tool.promise == "format" for tool in _with_forms(accepted)):
            return AT_ONCE_BYTES + 1
        return sum(
            self._forms.unknown_bytes(schema, strict=strict)
            for schema, strict in _schemas(accepted)
        )


def _with_forms(accepted: Accepted) -> Sequence[Tool]:
    """The tools whose calls may have a form: those that promise one, and all where one is
    forced."""
    return accepted.tools if accepted.choice.narrows else promising(accepted.tools)


def _choices(
    accepted: Accepted, choice: ToolChoice, answer: Form | None, calls: Mapping[str, Choice]
) -> list[Choice]:
    """The choices of a turn."""
    choices = []
    if choice.may_answer:
        choices.append(Choice("answer", form=answer, what="the format of the answer"))
    choices += [calls[tool.name] for tool in accepted.tools if tool.name in choice.names]
    choices += [
        Choice("built_in", recipient)
        for built_in in accepted.built_in
        if built_in.kind in choice.built_in
        for recipient in built_in.recipients
    ]
    return choices


def _as_far(tool: Tool, compiled: Callable[..., Form]) -> Form:
    """The form of a tool's calls, as far as a guide can follow the schema: of calls that are forced
    and whose form is not promised. Of what is no schema at all, only that it is an object."""
    try:
        return compiled(*schema_of(tool), strict=False)
    except SlowSchema:
        raise
    except InvalidRequest:
        return compiled(ANY_OBJECT, tool.place)


def _of_server(tool: Tool, compiled: Callable[..., Form]) -> Form | None:
    """The same for an MCP server's schema. One that cannot be followed is ignored: the client
    cannot mend it, and the MCP server checks the arguments and reports errors to the model."""
    try:
        return replace(_as_far(tool, compiled), judge=ANY_JSON)
    except InvalidRequest:
        return None


def _unfollowed(place: str, why: str) -> Unsupported:
    return unsupported_value(place, f"{why}. Leave 'format' out to let the model write any text")


def _helps(tool: Tool, accepted: Accepted) -> bool:
    """Whether a tool gets a form that is not promised: its call is forced, so that the model may
    not expect it."""
    return accepted.choice.narrows and tool.name in accepted.choice.names


def _schemas(accepted: Accepted) -> Iterator[tuple[Mapping[str, object], bool]]:
    if accepted.answer is not None and accepted.answer.schema is not None:
        yield accepted.answer.schema, accepted.answer.strict
    for tool in _with_forms(accepted):
        helps = not tool.callee.custom and (tool.server or _helps(tool, accepted))
        if tool.promise is not None or helps:
            with suppress(InvalidRequest):
                yield schema_of(tool)[0], tool.promise is not None


def _strict(accepted: Accepted, calls: Mapping[str, Choice]) -> list[Choice]:
    """The calls whose form is promised, whenever the model makes one."""
    return [
        calls[tool.name]
        for tool in _with_forms(accepted)
        if (tool.promise or tool.server) and calls[tool.name].form is not None
    ]


def _refuse_unguided(wanted: SteeringRequest, accepted: Accepted) -> None:
    choices, answer, choice = wanted.turn.choices or (), accepted.answer, accepted.choice
    if len(choices) > 1 and "regex" not in wanted.guides:
        cause = choice if choice.narrows else answer or accepted.thought or choice
        raise _cannot(cause.place, "choose among headers")
    if answer is not None and answer.grammar is not None and "lark" not in wanted.guides:
        raise _cannot(answer.place, "follow a grammar")
    forms = [one for one in (*choices, *wanted.turn.strict) if one.form]
    if forms and "json_schema" not in wanted.guides:
        strict = [
            f"{tool.place}.{tool.promise}"
            for tool in accepted.tools
            if tool.promise and not is_raw(tool)
        ]
        place = answer.place if answer is not None and choice.may_answer else strict[0]
        raise _cannot(place, "follow a JSON schema")


def _cannot(param: str, what: str) -> Unsupported:
    return unsupported_value(param, f"this engine cannot be guided to {what}")
