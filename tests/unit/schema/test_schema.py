"""The whitelist: each keyword in five schemas, every other one refused, and everything bounded.

Budget: 5 s on one core.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.structured_output_page import PAGE, page
from tests.support.keyword_cases import (
    CASES,
    INT,
    NULL,
    Json,
    arr,
    num,
    obj,
    text,
)
from tests.support.schema_judge import valid
from trt_responses.errors import InvalidRequest
from trt_responses.harmony import schema as s
from trt_responses.harmony import whitelist as w
from trt_responses.harmony.keywords import Allowance, SlowSchema
from trt_responses.harmony.pattern import Pattern, UnsafePattern

unhurried = settings(deadline=None, max_examples=300)


def form(schema: Json) -> s.Form:
    return s.Forms().form(schema, "text.format.schema")


def follows(schema: Json, value: Any) -> bool:
    check = form(schema).check()
    return check.feed(json.dumps(value, separators=(",", ":")).encode()) and check.whole


def fault(schema: Any, place: str = "text.format.schema") -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        s.Forms().form(schema, place)
    assert caught.value.code == "invalid_json_schema"
    assert str(caught.value.param) in caught.value.message
    return caught.value


def test_every_keyword_is_in_five_schemas_at_least() -> None:
    assert CASES.keys() == w.KEYWORDS.keys()
    for keyword, cases in CASES.items():
        said = [json.dumps(keyword) in json.dumps(schema) for schema, _, _ in cases]
        assert sum(said) >= 5


@pytest.mark.parametrize(
    ("schema", "lawful", "unlawful"), [case for cases in CASES.values() for case in cases]
)
def test_a_schema_takes_what_it_should_and_nothing_else(
    schema: Json, lawful: list[Any], unlawful: list[Any]
) -> None:
    for value in lawful:
        assert valid(value, schema, schema), "the judge says otherwise"
        assert follows(schema, value), value
    for value in unlawful:
        assert not valid(value, schema, schema), "the judge says otherwise"
        assert not follows(schema, value), value


OTHERS = (
    *("not", "oneOf", "allOf", "if", "then", "else", "dependentSchemas", "dependentRequired"),
    *("contains", "minContains", "maxContains", "uniqueItems", "additionalItems", "multipleOf"),
    *("patternProperties", "propertyNames", "minProperties", "maxProperties", "dependencies"),
    *("unevaluatedItems", "unevaluatedProperties", "contentEncoding", "contentMediaType", "$id"),
    *("contentSchema", "$anchor", "$dynamicRef", "$dynamicAnchor", "$vocabulary", "id", "nullable"),
    *("discriminator", "x-guidance", "extends", "Type", "strict"),
)


@pytest.mark.parametrize("keyword", OTHERS)
def test_every_other_keyword_is_refused_with_its_name_and_place(keyword: str) -> None:
    odd = {"type": "object", keyword: {}}
    assert fault(odd).param == f"text.format.schema.{keyword}"
    nested = obj(a={"anyOf": [INT, arr(items=odd)]})
    place = "tools[2].parameters"
    assert fault(nested, place).param == f"{place}.properties.a.anyOf[1].items.{keyword}"
    assert fault(obj() | {"$defs": {"x": odd}}).param == f"text.format.schema.$defs.x.{keyword}"


@pytest.mark.parametrize("keyword", sorted(w.ANNOTATIONS))
def test_an_annotation_changes_nothing_and_is_not_given_to_the_engine(keyword: str) -> None:
    plain = obj("a", a=INT, b={"anyOf": [NULL]})
    marked = obj("a", a=INT | {keyword: "x"}, b={"anyOf": [NULL], keyword: 5}) | {keyword: []}
    assert form(marked).source == form(plain).source


@pytest.mark.parametrize(
    ("place", "schema"),
    [
        ("type", {"minimum": 1}),
        ("type", {"type": "any"}),
        ("type", {"type": []}),
        ("type", {"type": None}),
        ("properties", {"type": "object", "properties": []}),
        ("properties.a", {"type": "object", "properties": {"a": 5}}),
        ("required", obj("a")),
        ("required", {"type": "object", "required": "a"}),
        ("additionalProperties", {"type": "object", "additionalProperties": 5}),
        ("items", arr(items=[INT])),
        ("prefixItems", arr(prefixItems={})),
        ("minItems", arr(minItems=2, maxItems=1)),
        ("minItems", arr(minItems=2, items=False)),
        ("minItems", arr(minItems=1.0)),
        ("minItems", arr(minItems=True)),
        ("maxLength", text(maxLength=-1)),
        ("minLength", text(minLength=3, maxLength=2)),
        ("minimum", text(minimum=1)),
        ("maxLength", num(maxLength=1)),
        ("minimum", num(minimum="1")),
        ("minimum", num(minimum=True)),
        ("minimum and maximum", num(minimum=2, maximum=1)),
        ("minimum and maximum", num("integer", exclusiveMinimum=1, exclusiveMaximum=2)),
        ("minimum and maximum", num(exclusiveMinimum=1, maximum=1)),
        ("enum", {"enum": []}),
        ("enum", {"enum": "ab"}),
        ("enum", {"type": "string", "enum": [1]}),
        ("minLength", {"enum": ["a"], "minLength": 1}),
        ("anyOf", {"anyOf": []}),
        ("anyOf[1]", {"anyOf": [INT, 5]}),
        ("type", {"anyOf": [INT], "type": "integer"}),
        ("type", {"$ref": "#", "type": "object"}),
        ("$ref", {"$ref": "#/$defs/x"}),
        ("$ref", {"$ref": "other.json"}),
        ("$ref", {"$ref": 5}),
        ("$ref", {"$ref": "#/$defs/a b", "$defs": {"a b": INT}}),
        ("$ref", {"$ref": "#"}),
        ("$ref", {"anyOf": [{"$ref": "#"}, INT]}),
        ("properties.a.$defs", obj(a=INT | {"$defs": {}})),
        ("$defs.x", obj() | {"$defs": {"x": False}}),
        ("pattern", text(pattern="a")),
        ("pattern", text(pattern="^a$", maxLength=5)),
        ("format", text(format="email")),
        ("format", text(format="date", pattern="^a$")),
    ],
)
def test_a_schema_that_means_nothing_is_refused_with_its_place(place: str, schema: Json) -> None:
    assert str(fault(schema).param).startswith(f"text.format.schema.{place}")


@pytest.mark.parametrize(
    "schema",
    [
        obj("a", a={"$ref": "#"}),
        arr(items={"$ref": "#"}, minItems=1),
        obj("n", n={"$ref": "#/$defs/n"}) | {"$defs": {"n": obj("n", n={"$ref": "#/$defs/n"})}},
    ],
)
def test_a_schema_without_a_finite_value_is_refused(schema: Json) -> None:
    assert "ends" in fault(schema).message


def deep(depth: int) -> Json:
    schema = INT
    for _ in range(depth):
        schema = arr(items=schema)
    return schema


def deep_value(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def wide(count: int) -> Json:
    return obj(**{f"p{n}": NULL for n in range(count)})


def alternatives(outer: int, inner: int) -> Json:
    """As many as that, times as many, by references."""
    options = {f"d{n}": {"anyOf": [NULL] * inner} for n in range(outer)}
    return {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in options], "$defs": options}


def refers(count: int) -> Json:
    members = {f"p{n}": {"$ref": "#/$defs/x"} for n in range(count)}
    return obj(**members) | {"$defs": {"x": INT}}


@pytest.mark.parametrize(
    ("largest", "too_large"),
    [
        (deep(w.MAX_DEPTH), deep(w.MAX_DEPTH + 1)),
        (wide(w.MAX_SUBSCHEMAS - 1), wide(w.MAX_SUBSCHEMAS)),
        (refers(w.MAX_REFERENCES), refers(w.MAX_REFERENCES + 1)),
        ({"anyOf": [NULL] * w.MAX_ALTERNATIVES}, {"anyOf": [NULL] * (w.MAX_ALTERNATIVES + 1)}),
        (alternatives(8, 8), alternatives(13, 5)),
        (
            {"anyOf": [arr(minItems=1000, maxItems=1000)] * 8},
            obj(**{f"p{n}": arr(maxItems=1000) for n in range(17)}),
        ),
        ({"enum": [*range(w.MAX_ENUM_VALUES)]}, {"enum": [*range(w.MAX_ENUM_VALUES + 1)]}),
        ({"const": "x" * 16_000}, {"const": "x" * 17_000}),
        ({"const": deep_value(20)}, {"const": deep_value(40)}),
        (arr(maxItems=w.MAX_REPEATS), arr(maxItems=w.MAX_REPEATS + 1)),
        (text(pattern=f"^{'a' * 254}$"), text(pattern=f"^{'a' * 255}$")),
        (obj() | {"title": "x" * 65_000}, obj() | {"title": "x" * 66_000}),
        (num(minimum=1e15), num(minimum=1e16)),
    ],
)
def test_each_bound_is_where_it_is_said(largest: Json, too_large: Json) -> None:
    """What is in bounds compiles in no time to speak of: there is nothing to wait for."""
    begin = time.process_time()
    form(largest)
    assert time.process_time() - begin < 1
    fault(too_large)


@pytest.mark.parametrize(
    "pattern",
    [
        *("^a|b$", "a$", "^a", "^$", "^a{600}$", "^a{3,2}$", "^a**$", "^a+?$", "^(a|)$", "^()$"),
        *("^\\1$", "^[a$", "^[z-a]$", "^(?=a)$", "^(?<=a)b$", "^\\b$", "^é$", "^[]$", "^a\\$",),
        *("^(a$", "^a)$", "^[a&&b]$", "^[a--b]$", "^((((a{9}){9}){9}){9})$"),
        f"^{'(' * 17}a{')' * 17}$",
    ],
)  # fmt: skip
def test_a_pattern_that_could_run_away_or_be_read_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(UnsafePattern):
        Pattern(pattern)


REGULAR = (
    *("^(a)$", "^(a|b)$", "^a.b$", "^(a+)+$", r"^\s$", "^(ab|a)(c|bcd)(d*)$", "^(a|b{2}){2,3}c$"),
    *("^((a|b)*c?){0,3}$", "^(?:a{0}b|c){1,}$", "^(?P<x>a)(?<y>b)?$", r"^(\+\d{1,2})?\d{3}$"),
    *(r"^[\s,]+$", r"^([^a]|ab)*$", "^(a?b?c?){3}$", "^(a*)*b$"),
)


@unhurried
@given(st.sampled_from(REGULAR), st.text("abcd+1 ,\n\té", max_size=9))
def test_a_pattern_takes_what_pythons_own_matcher_takes(expression: str, value: str) -> None:
    pattern = Pattern(expression)
    said = re.sub(r"\(\?<", "(?P<", pattern.source)
    lawful = re.fullmatch(said[1:-1], value, re.ASCII) is not None
    assert pattern.follows(value) == lawful
    assert pattern.ends(pattern.after(pattern.after(pattern.begin, value[:4]), value[4:])) == lawful


def test_the_worst_pattern_is_checked_in_no_time() -> None:
    matches = Pattern(f"^{'a?' * 60}a*a*b$").follows
    begin = time.process_time()
    assert not matches("a" * 4000)
    assert matches("a" * 4000 + "b")
    assert time.process_time() - begin < 1  # Python's own matcher would not come back


@pytest.mark.parametrize(
    ("place", "schema"),
    [
        ("enum", {"enum": ["a", "x<|end|>"]}),
        ("const", {"const": {"deep": ["<|start|>"]}}),
        ("properties.<|call|>", {"type": "object", "properties": {"<|call|>": {}}}),
    ],
)
def test_forced_text_that_spells_a_control_token_is_refused(place: str, schema: Json) -> None:
    refused = fault(schema, "schema")
    assert refused.param == f"schema.{place}"
    assert "control token" in refused.message


def test_the_schemas_of_a_request_share_one_time_and_the_one_that_exceeds_it_is_named() -> None:
    clock = itertools.count()
    allowance = Allowance(10, lambda: next(clock))
    forms = s.Forms()
    forms.form(wide(5), "tools[0].parameters", allowance)
    with pytest.raises(SlowSchema) as caught:
        forms.form(wide(6), "tools[1].parameters", allowance)
    told = caught.value
    assert (told.status, told.param) == (400, "tools[1].parameters")
    assert "within 10 s" in told.message
    assert "TRT_RESPONSES_SCHEMA_S" in told.message
    assert forms.form(wide(6), "x").source, "and it is not kept half-made"


@pytest.mark.parametrize("kind", ["elements", "references", "patterns", "words"])
def test_the_worst_schemas_in_bounds_compile_at_once(kind: str) -> None:
    """The first, with more elements, took 8 s; ten times of what was measured is allowed."""
    rows = {f"d{n}": arr(minItems=60, items={"$ref": f"#/$defs/d{n + 1}"}) for n in range(249)}
    references = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(249)}
    first = {"$ref": "#/$defs/d0"}
    hostile: dict[str, Json] = {
        "elements": first | {"$defs": rows | {"d249": NULL}},
        "references": first | {"$defs": references | {"d249": NULL}},
        "patterns": {"anyOf": [text(pattern=f"^{f'[a-z{n}]?' * 20}$") for n in range(64)]},
        "words": {"anyOf": [{"enum": [f"\x01é{n}x{i}" for n in range(300)]} for i in range(9)]},
    }
    begin = time.thread_time()
    form(hostile[kind])
    assert time.thread_time() - begin < 1.5


def test_forms_are_compiled_once_and_only_some_are_kept() -> None:
    forms = s.Forms(kept=2)
    first = forms.form(wide(1), "x")
    assert forms.form(wide(1), "y") is first
    forms.form(wide(2), "x")
    assert forms.form(wide(1), "x") is first
    forms.form(wide(3), "x")
    assert forms.form(wide(1), "x") is first
    assert len(forms._known) == 2


def test_the_engine_is_given_every_default() -> None:
    given = orjson.loads(form({"type": "object", "title": "T"}).source)
    assert given == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": True,
    }


def test_the_page_says_what_the_code_does() -> None:
    assert PAGE.read_text() == page(), "run `python -m scripts.structured_output_page`"
