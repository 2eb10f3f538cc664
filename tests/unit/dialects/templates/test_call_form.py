"""Arguments that are no JSON, under a tool's schema: the grammar that engines are guided by, the
follower of the text, and the reader that makes JSON of it say the same."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from tests.support import schema_judge
from tests.support.call_forms import FORMS, dialect_for
from tests.support.random_schemas import schema as random_schema
from tests.support.requests import accepted
from tests.support.template_served import dialect_of
from tests.support.template_turns import merged
from trt_responses.errors import Unsupported
from trt_responses.features.guides.steering import GuidedSteering
from trt_responses.language.messages import FunctionTool
from trt_responses.language.reader import ReaderOptions
from trt_responses.language.steering import Choice, Turn, Unguided
from trt_responses.schema.compile import Form, Forms

if TYPE_CHECKING:
    from trt_responses.dialects.templates.read.reader import TemplateReader
    from trt_responses.language.steering import Guides

Json = dict[str, Any]

XML, KV = "qwen3_5_think", "glm4moe"
DIALECTS = {name: dialect_of(name) for name in (XML, KV)} | {
    name: dialect_for(calls) for name, calls in FORMS.items()
}
both = pytest.mark.parametrize("name", [XML, KV])
each = pytest.mark.parametrize("name", DIALECTS)
SLOW = pytest.mark.slow  # sixty schemas, two seconds of CPU
each_slowly = pytest.mark.parametrize(
    "name", [XML, KV, *(pytest.param(name, marks=SLOW, id=name) for name in FORMS)]
)


def member(schema: Json, **others: Any) -> Json:
    """Of a function with one argument."""
    return {
        "type": "object",
        "properties": {"a": schema},
        "required": ["a"],
        "additionalProperties": False,
        **others,
    }


def tool(schema: Json) -> FunctionTool:
    return FunctionTool("f", "", schema)


def form_of(name: str, schema: Json) -> Form:
    of_json = Forms(cached=1).form(schema, "tools[0].parameters", strict=False)
    return DIALECTS[name].arguments(of_json, tool(schema))


def followed(name: str, text: str) -> list[bytes]:
    """What a follower is told of a text in which control strings are spelled out."""
    dialect = DIALECTS[name]
    forms = dialect.places.forms
    assert forms is not None
    ids = dialect.tokeniser.encode(text)
    return [forms.marks.get(n) or dialect.tokeniser.bytes_of(n) for n in ids]


def verdict(name: str, schema: Json, text: str) -> str:
    """What becomes of arguments that are written so, with control strings spelled out."""
    follower = form_of(name, schema).follow()
    if not all(map(follower.feed, followed(name, text))):
        return "departed"
    if not follower.whole:
        return "cut"
    return "followed" if follower.departure() is None else "judged"


def value(name: str, text: str) -> str:
    """The arguments in which `a` is this text."""
    if name == XML:
        return f"<parameter=a>\n{text}\n</parameter>\n</function>\n"
    return f"<arg_key>a</arg_key>\n<arg_value>{text}</arg_value>\n"


class Vocabulary:
    """A checkpoint's, as an engine's guide has it; as the last comes an id that ends it."""

    bos_token_id = None

    def __init__(self, name: str) -> None:
        one = DIALECTS[name].tokeniser
        self.tokens = [*one.token_bytes, b"<end>"]
        self.eos_token_id = len(self.tokens) - 1
        self.special_token_ids = (*one.controls, self.eos_token_id)

    def __call__(self, text: bytes | str) -> list[int]:
        raw = text if isinstance(text, bytes) else text.encode()
        return [self.tokens.index(bytes([byte])) for byte in raw]


TOKENISERS = {
    name: LLTokenizer(
        TokenizerWrapper(one := Vocabulary(name)),
        n_vocab=len(one.tokens),
        eos_token=one.eos_token_id,
        slices=[],
    )
    for name in DIALECTS
}


def walk(name: str, form: Form, random: Random, most: int = 250) -> list[int] | None:
    """Random ids that an engine's guide allows; None when they come to no end."""
    end = Vocabulary(name).eos_token_id
    guide = LLMatcher(TOKENISERS[name], f"%llguidance {{}}\n{form.source}", log_level=0)
    assert not guide.is_error(), guide.get_error()
    ids: list[int] = []
    for _ in range(most):
        bits = np.unpackbits(np.frombuffer(guide.compute_bitmask(), np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits[: end + 1]).tolist()
        if end in allowed and (len(allowed) == 1 or random.random() < 0.5):
            return ids
        choices = [n for n in allowed if n != end]
        tokens = DIALECTS[name].tokeniser
        closing = [n for n in choices if n in tokens.controls or tokens.bytes_of(n) in b'\n</"]}']
        ids.append(random.choice(closing if closing and random.random() < 0.5 else choices))
        guide.consume_token(ids[-1])
    return None


def read_back(name: str, schema: Json, ids: list[int]) -> tuple[Any, TemplateReader]:
    """The arguments that a client gets, and their reader."""
    reader = DIALECTS[name].reader(ReaderOptions(call_ends=False, tools=(tool(schema),)))
    places = DIALECTS[name].places
    whole = [*places.first_call, *places.head("f"), *ids, *places.tail]
    (text,) = [one for one in merged(reader.feed(whole)) if isinstance(one, str)]
    return json.loads(text), reader


@each_slowly
def test_whatever_a_guide_lets_through_is_followed_and_reads_back_under_the_schema(
    name: str,
) -> None:
    """The guide, the follower, the reader and a judge of their own agree."""
    ended = 0
    for seed in range(60):
        random = Random(seed)
        schema = random_schema(random)
        try:
            form = form_of(name, schema)
        except Unguided:
            continue
        ids = walk(name, form, random)
        if ids is None:
            continue
        ended += 1
        told, reader = read_back(name, schema, ids)
        assert not any(span.repaired for span in reader.messages), (seed, ids)
        assert schema_judge.valid(told, schema, schema), (seed, told)
        tokens = DIALECTS[name].tokeniser
        assert verdict(name, schema, tokens.text(ids)) == "followed", seed
    assert ended >= 25


TEXTS: list[tuple[Json, str, str]] = [
    ({"type": "string"}, "Oslo\n\nby the <b>fjord</b>", "followed"),
    ({"type": "string"}, "", "followed"),
    ({"type": "string", "maxLength": 3}, "Oslo", "departed"),
    ({"type": "string", "minLength": 3}, "Os", "departed"),
    ({"type": "string", "pattern": "^a/b+$"}, "a/bb", "followed"),
    ({"type": "string", "pattern": "^a/b+$"}, "xa/bb", "departed"),
    ({"type": "string", "pattern": "l"}, "Oslo", "followed"),
    ({"type": "string", "pattern": "x"}, "Oslo", "departed"),
    ({"type": "string", "format": "date"}, "2026-02-29", "departed"),
    ({"enum": ["C", "F/[x]"]}, "F/[x]", "followed"),
    ({"enum": ["C", "F"]}, "CF", "departed"),
    ({"enum": ["C", 7]}, "C", "followed"),
    ({"type": ["string", "null"]}, "null", "followed"),
    ({"type": ["string", "null"], "maxLength": 2}, "null", "followed"),
    ({"type": ["string", "null"], "maxLength": 2}, "nul", "departed"),
    ({"type": "integer", "maximum": 9}, "7", "followed"),
    ({"type": "integer", "maximum": 9}, "10", "departed"),
    ({"type": "integer"}, "seven", "departed"),
    ({"type": "array", "items": {"type": "boolean"}}, "[true,false]", "followed"),
    ({"type": "object", "properties": {"k": {"enum": [1]}}, "required": ["k"]}, "{}", "departed"),
    ({"anyOf": [{"type": "string", "pattern": "^x$"}, {"type": "null"}]}, "x", "followed"),
    ({"$ref": "#/$defs/t"}, "ab", "followed"),
    ({"type": "array", "items": {"$ref": "#/$defs/t"}}, '["ab"]', "followed"),
    ({"type": "array", "items": {"$ref": "#/$defs/t"}}, '["abc"]', "departed"),
]
DEFINED = {"t": {"type": "string", "maxLength": 2}}


@both
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_a_value_is_followed_by_its_schema(name: str, number: int) -> None:
    part, text, expected = TEXTS[number]
    schema = member(part, **{"$defs": DEFINED})
    assert verdict(name, schema, value(name, text)) == expected
    if expected == "followed":
        told, _ = read_back(name, schema, DIALECTS[name].tokeniser.encode(value(name, text)))
        assert schema_judge.valid(told["a"], part, schema)


@both
def test_a_value_never_holds_a_mark_of_the_call(name: str) -> None:
    marks = {XML: ["</parameter>", "</tool_call>"], KV: ["<arg_key>", "</arg_value>"]}[name]
    for mark in marks:
        assert verdict(name, member({"type": "string"}), value(name, f"x{mark}y")) == "departed"
        follower = form_of(name, member({"type": "string"})).follow()
        before = value(name, "x").partition("x")[0]
        assert all(map(follower.feed, followed(name, before)))
        assert not all(follower.feed(bytes([byte])) for byte in f"x{mark}y".encode())


def test_a_text_in_a_list_that_spells_a_values_end_is_told_as_a_fault() -> None:
    schema = member({"type": "array", "items": {"type": "string"}})
    assert verdict(XML, schema, value(XML, '["x</parameter>y"]')) == "judged"
    assert verdict(KV, schema, value(KV, '["x</parameter>y"]')) == "followed"


@both
def test_members_may_be_left_out_as_the_schema_says(name: str) -> None:
    schema = member({"type": "string"}, required=[])
    schema["properties"]["b"] = {"type": "integer"}
    nothing = {XML: "</function>\n", KV: ""}[name]
    assert verdict(name, schema, nothing) == "followed"
    assert verdict(name, schema, value(name, "x")) == "followed"
    other = value(name, "x").replace({XML: "=a>", KV: ">a<"}[name], {XML: "=c>", KV: ">c<"}[name])
    assert verdict(name, schema, other) == "departed"
    assert verdict(name, member({"type": "string"}), nothing) in ("cut", "departed")


@each
def test_a_function_without_arguments_is_called_with_none(name: str) -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    ids = walk(name, form_of(name, schema), Random(0))
    assert ids is not None
    assert read_back(name, schema, ids)[0] == {}


UNGUIDED = {
    "members of any name": {"type": "object"},
    "a schema that holds itself": member({"type": "array", "items": {"$ref": "#"}}),
    "a name that ends a tag": {"type": "object", "properties": {"a>b": {"type": "string"}}},
    "a count of members": member({"type": "integer"}, minProperties=1),
    "an anchor in the middle": member({"type": "string", "pattern": "^a|b$"}),
    "keywords beside anyOf": member({"anyOf": [{"type": "string"}], "maxLength": 2}),
}


@both
@pytest.mark.parametrize("case", UNGUIDED)
def test_what_cannot_be_guided_says_why(name: str, case: str) -> None:
    with pytest.raises(Unguided, match=r"\w"):
        form_of(name, UNGUIDED[case])


def test_families_that_write_json_keep_their_form() -> None:
    dialect = dialect_of("qwen3")
    form = Forms(cached=1).form(member({"type": "string"}), "tools[0].parameters")
    assert dialect.arguments(form, tool({})) is form


STRICT = {
    "tools": [
        {"type": "function", "name": "f", "strict": True, "parameters": member({"type": "string"})}
    ]
}
ENDS = frozenset({0})


def test_an_engine_without_lark_refuses_strict_tools_and_leaves_others_to_the_model() -> None:
    steering = GuidedSteering(DIALECTS[XML])
    guides: Guides = {"json_schema": ENDS, "regex": ENDS}
    with pytest.raises(Unsupported) as refused:
        asyncio.run(steering.request(accepted(STRICT), guides))
    assert refused.value.param == "tools[0].strict"
    assert "write arguments as 'qwen3-xml' does" in refused.value.message
    forced = {"tools": [STRICT["tools"][0] | {"strict": False}], "tool_choice": "required"}
    (choice,) = asyncio.run(steering.request(accepted(forced), guides)).turn.choices or ()
    assert (choice.name, choice.form) == ("f", None)
    guided = asyncio.run(steering.request(accepted(forced), {**guides, "lark": ENDS}))
    (choice,) = guided.turn.choices or ()
    assert choice.form is not None
    assert choice.form.kind == "lark"


@both
def test_a_plan_lets_the_marks_of_arguments_through_and_no_other_control_id(name: str) -> None:
    dialect, schema = DIALECTS[name], member({"type": "string"})
    turn = Turn([Choice("call", "f", form_of(name, schema))], thought=0)
    guides: Guides = dict.fromkeys(("json_schema", "regex", "lark"), ENDS)
    forms = dialect.places.forms
    assert forms is not None
    marks = set(forms.marks)
    for stranger in (None, dialect.tokeniser.control_id("<think>")):
        reader = dialect.reader(ReaderOptions(call_ends=False, tools=(tool(schema),)))
        segment = dialect.plan(turn, guides, 500).next(reader)
        assert segment is not None
        assert segment.gate is not None
        assert marks.isdisjoint(segment.banned_ids)
        assert marks | {*segment.banned_ids} == {*dialect.tokeniser.controls}
        written = dialect.tokeniser.encode(value(name, "x"))
        if stranger is None:
            assert list(segment.gate.admit(written)) == written
            assert segment.gate.finish("stop") == dialect.places.tail
        else:
            assert not segment.gate.admit([stranger])
            assert segment.gate.fault is not None
