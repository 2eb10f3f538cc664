"""Calls that a model begins by itself under strict tools, where a token shows it and where the text
does: the plan takes over behind the head, and guides the arguments."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.call_forms import FORMS, dialect_for
from tests.support.template_turns import merged, short
from trt_responses.dialects.templates.families import Calls, json_calls
from trt_responses.dialects.templates.gates import CallBegins, Signs
from trt_responses.language.messages import FunctionTool
from trt_responses.language.reader import ReaderOptions
from trt_responses.language.steering import Choice, Turn
from trt_responses.schema.compile import Forms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trt_responses.dialects.templates.dialect import TemplateDialect
    from trt_responses.language.steering import Guides, Segment

BARE = Calls(
    *("", "", "json", None, '{"name": "', '", "parameters": ', "}", ("name", "parameters")),
    several=False,
)
OTHERS = {
    "bare": BARE,
    "spelled": Calls("<function=", "</function>", "named", after_name=">"),
    "token": json_calls("<tool_call>", "</tool_call>"),
}
DIALECTS = {name: dialect_for(calls) for name, calls in (FORMS | OTHERS).items()}
THINKING = dialect_for(OTHERS["spelled"], ("<think>", "</think>"))
"""Calls that are text, behind a thought."""
WRITTEN = {
    "quoted": '<function name="NAME"><param name="city">Oslo</param>'
    '<param name="days">2</param></function>',
    "typed": '<|open|>tools<|sep|><|open|>call tool="NAME" index="1"<|sep|>'
    '<|open|>argument key="city" type="string"<|sep|>Oslo<|close|>argument<|sep|>'
    '<|open|>argument key="days" type="number"<|sep|>2<|close|>argument<|sep|>'
    "<|close|>call<|sep|><|close|>tools<|sep|>",
    "python": "<|calls|>[NAME(city='Oslo', days=2)]<|calls_end|>",
    "marked": '<|call>call:NAME{city:<|"|>Oslo<|"|>,days:2}<call|>',
    "bare": '{"name": "NAME", "parameters": {"city": "Oslo", "days": 2}}',
    "spelled": '<function=NAME>{"city": "Oslo", "days": 2}</function>',
    "token": '<tool_call>\n{"name": "NAME", "arguments": {"city": "Oslo", "days": 2}}\n'
    "</tool_call>",
}
"""A call of each form."""
each_form = pytest.mark.parametrize("form", DIALECTS)
sizes = pytest.mark.parametrize("size", [1, 3, 1000])
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
AS_JSON = Forms(cached=1).form(SCHEMA, "tools[0].parameters")
ARGUMENTS = {"city": "Oslo", "days": 2}
TOOLS = (FunctionTool("get", "", SCHEMA), FunctionTool("get_weather", "", SCHEMA))
GUIDES: Guides = dict.fromkeys(("json_schema", "regex", "lark"), frozenset({0}))


class Driven:
    """A plan over a model that writes a text, and writes on where the plan forced some of it."""

    def __init__(self, form: str | TemplateDialect, turn: Turn, text: str, size: int) -> None:
        self._dialect = DIALECTS[form] if isinstance(form, str) else form
        self._text, self._size = f"{text}<|end|>", size
        self._reader = self._dialect.reader(ReaderOptions(call_ends=False, tools=TOOLS))
        self.segments: list[Segment] = []
        self.fault: object = None
        plan, fragments = self._dialect.plan(turn, GUIDES, 500), []
        while self.fault is None and (segment := plan.next(self._reader)) is not None:
            self.segments.append(segment)
            fragments += self._reader.feed(segment.forced)
            for ids in self._admitted(segment):
                fragments += self._reader.feed(ids)
            self.fault = segment.gate and segment.gate.fault
        fragments += self._reader.finish(stopped=True)
        self.lines = short(merged(fragments))

    def _admitted(self, segment: Segment) -> Iterator[Sequence[int]]:
        tokens, gate = self._dialect.tokeniser, segment.gate
        so_far = tokens.text(self._reader.kept)
        assert self._text.startswith(so_far), so_far
        text = self._text[len(so_far) :]
        marks = "|".join(map(re.escape, tokens.controls.values()))
        # A guided engine writes what its guide allows: no id that ends behind a part of it.
        parts = re.findall(f"{marks}|.", text, re.DOTALL) if segment.guide else [text]
        ids = [n for part in parts for n in tokens.encode(part)]
        stop = next((n + 1 for n, one in enumerate(ids) if one in segment.stop_ids), len(ids))
        for at in range(0, stop, self._size):
            chunk = ids[at : min(at + self._size, stop)]
            yield chunk if gate is None else gate.admit(chunk)
            if gate is not None and gate.over:
                return
        if gate is not None:
            yield gate.finish("stop")

    @property
    def guided(self) -> list[str]:
        """The names of the guided segments."""
        return [one.name for one in self.segments if one.guide is not None]


def call(form: str, name: str) -> Choice:
    (tool,) = [one for one in TOOLS if one.name == name]
    return Choice("call", name, DIALECTS[form].arguments(AS_JSON, tool))


def watched(form: str, calls: int = 1) -> Turn:
    choices = [call(form, tool.name) for tool in TOOLS]
    return Turn(strict=choices, offered=choices, calls=calls)


def is_call(line: str, name: str = "get_weather") -> bool:
    head, _, text = line.partition(": ")
    return head == name and json.loads(text) == ARGUMENTS


@each_form
@sizes
def test_a_call_is_guided_once_its_head_is_there(form: str, size: int) -> None:
    for name in ("get", "get_weather"):
        driven = Driven(form, watched(form), WRITTEN[form].replace("NAME", name), size)
        assert driven.fault is None
        assert driven.guided[-1] == "body"
        (line,) = driven.lines
        assert is_call(line, name)


@each_form
def test_arguments_that_break_the_schema_are_a_fault(form: str) -> None:
    text = WRITTEN[form].replace("NAME", "get").replace("2", "12")
    assert Driven(form, watched(form), text, 1).fault is not None


@each_form
@sizes
def test_an_answer_goes_its_way(form: str, size: int) -> None:
    for text in ("Use <b>x</b> [1] {y}.", '{"name": "Bob", "parameters": {}}', "<function nam"):
        driven = Driven(form, watched(form), text, size)
        assert (driven.guided, driven.fault) == ([], None)
        assert driven.lines == [f"final: {text}"]


@each_form
@sizes
def test_an_answer_of_a_schema_or_a_call(form: str, size: int) -> None:
    choices = [Choice("answer", form=AS_JSON), *(call(form, tool.name) for tool in TOOLS)]
    turn = Turn(choices=choices, offered=choices[1:])
    driven = Driven(form, turn, WRITTEN[form].replace("NAME", "get_weather"), size)
    assert [is_call(line) for line in driven.lines] == [True]
    driven = Driven(form, turn, json.dumps(ARGUMENTS), size)
    assert driven.guided == ["body"]
    assert driven.lines == [f"final: {json.dumps(ARGUMENTS)}"]


def test_a_thought_is_not_ended_by_a_part_of_a_calls_mark() -> None:
    choice = Choice("call", "get", THINKING.arguments(AS_JSON, TOOLS[0]))
    turn = Turn(choices=[Choice("answer", form=AS_JSON), choice], offered=[choice])
    call = WRITTEN["spelled"].replace("NAME", "get")
    text = f"<think>\na < b, so </b> it is.</think>\n\n{call}"
    lines = Driven(THINKING, turn, text, 1).lines
    assert lines[0] == "analysis: a < b, so </b> it is."
    assert is_call(lines[1], "get")


@pytest.mark.parametrize("form", ["quoted", "spelled", "token", "marked"])
@sizes
def test_so_is_the_next_call_of_a_turn(form: str, size: int) -> None:
    text = "".join(WRITTEN[form].replace("NAME", name) for name in ("get_weather", "get"))
    driven = Driven(form, watched(form, calls=2), text, size)
    assert driven.guided.count("body") == 2
    first, second = driven.lines
    assert is_call(first)
    assert is_call(second, "get")


@each_form
def test_a_call_without_a_schema_ends_where_the_model_ends_it(form: str) -> None:
    turn = Turn(choices=[Choice("call", "get_weather")])
    driven = Driven(
        form, turn, WRITTEN[form].replace("NAME", "get_weather").replace("Oslo", ">"), 1
    )
    (line,) = driven.lines
    assert json.loads(line.partition(": ")[2]) == {"city": ">", "days": 2}


TOKENS: tuple[bytes, ...] = (
    b"<function",
    b"=get",
    b"_wea",
    b"ther",
    b'>{"',
    b"a",
    b" <fun",
    b"<",
    b'{"',
    b"name",
    b'":',
)
TOKENS += (b' "get', b'_weather",', b"<tool_call>", b"\n", b'"', b'":"')
CONTROLS = (TOKENS.index(b"<tool_call>"),)


def of(*spelled: bytes) -> list[int]:
    return [*map(TOKENS.index, spelled)]


HEADS: list[tuple[str, list[int], list[int], str | None]] = [
    ("<function=", of(b"a", b"<function", b"=get", b"_wea"), of(b"a", b"<function"), "="),
    ("<function=", of(b" <fun", b"a"), of(b" <fun", b"a"), None),
    ("=get_wea", of(b"=get", b"_wea", b"ther"), of(b"=get", b"_wea"), ""),
    (
        '{"name": "get"',
        of(b'{"', b"name", b'":', b' "get', b'":"'),
        of(b'{"', b"name", b'":', b' "get'),
        '"',
    ),
    (
        '{"name": "get"',
        of(b'{"', b"\n", b"name", b'":"', b"a"),
        of(b'{"', b"\n", b"name", b'":"', b"a"),
        None,
    ),
    (
        '{"name": "get_weather"',
        of(b'{"', b"name", b'":', b' "get', b'_weather",'),
        of(b'{"', b"name", b'":', b' "get'),
        '_weather"',
    ),
]
"""A head, what a model writes, what counts of it, and the rest of the head."""


@pytest.mark.parametrize(("head", "written", "counted", "rest"), HEADS)
@sizes
def test_an_id_that_spells_more_than_the_head_is_left_out(
    head: str, written: list[int], counted: list[int], rest: str | None, size: int
) -> None:
    anchored = head.startswith("{")
    gate = CallBegins([head], Signs(TOKENS, CONTROLS), anchored=anchored, holds=False)
    parts = [written[at : at + size] for at in range(0, len(written), size)]
    assert [one for part in parts for one in gate.admit(part)] == counted
    assert (gate.over, gate.head) == ((False, "") if rest is None else (True, head))
    assert rest is None or gate.rest == rest
    assert [*counted, *gate.discarded] == written


def test_a_control_id_is_no_text_that_spells_it() -> None:
    signs = Signs((*TOKENS, b"<tool", b"_call>"), CONTROLS)
    head = signs.text(CONTROLS)
    gate = CallBegins([head], signs, anchored=True, holds=True)
    assert gate.admit([len(TOKENS), len(TOKENS) + 1]) == ()
    assert (gate.over, gate.head) == (True, "")
    gate = CallBegins([head], signs, anchored=True, holds=True)
    assert gate.admit(of(b"\n")) == ()
    assert gate.admit(CONTROLS) == (*of(b"\n"), *CONTROLS)
    assert gate.head == head
    assert signs.ids(head + "a", lambda text: of(text.encode())) == (*CONTROLS, *of(b"a"))
