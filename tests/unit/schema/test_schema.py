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
from tests.support.schema_judge import valid
from trt_responses.errors import InvalidRequest
from trt_responses.harmony import schema as s
from trt_responses.harmony import whitelist as w
from trt_responses.harmony.keywords import Allowance, SlowSchema
from trt_responses.harmony.pattern import Pattern, UnsafePattern

unhurried = settings(deadline=None, max_examples=300)
Json = dict[str, Any]
Case = tuple[Json, list[Any], list[Any]]
"""A schema, values that follow it, and values that do not."""

INT, TEXT, NULL, FLAG = ({"type": t} for t in ("integer", "string", "null", "boolean"))


def obj(required: str = "", /, rest: Any = False, **members: Json) -> Json:
    return {
        "type": "object",
        "properties": members,
        "required": required.split(),
        "additionalProperties": rest,
    }


def arr(**more: Any) -> Json:
    return {"type": "array", **more}


def num(kind: str = "number", **more: Any) -> Json:
    return {"type": kind, **more}


def text(**more: Any) -> Json:
    return {"type": "string", **more}


NODE = obj("next", next={"anyOf": [{"$ref": "#/$defs/node"}, NULL]})
TREE = obj("kids", kids=arr(items={"$ref": "#"}))

CASES: dict[str, list[Case]] = {
    "type": [
        (INT, [0, -12, 10**20], [1.5, "1", True, None]),
        (num(), [0, 1.5, -2e-7], ["1", None, []]),
        (FLAG, [True, False], [0, None, "true"]),
        ({"type": ["string", "null"]}, ["", "null", None], [0, [], {}]),
        ({"type": ["array", "object"]}, [[], {}, [1], {"a": 1}], ["", 0, None]),
        ({"type": ["integer", "number"]}, [1, 1.5], ["1"]),
    ],
    "properties": [
        (obj(a=INT), [{}, {"a": 1}], [{"a": "1"}, {"b": 1}, []]),
        (obj(a=INT, b=TEXT), [{"b": "x", "a": 1}], [{"b": 1}]),
        (obj(a=obj(b=obj(c=NULL))), [{"a": {"b": {"c": None}}}], [{"a": {"b": {"c": 0}}}]),
        (obj(**{"é\"\\": FLAG}), [{"é\"\\": True}], [{"é": True}]),
        (obj(rest=True, a=NULL), [{"a": None, "b": [1]}], [{"a": 1}]),
        (obj(), [{}], [{"a": 1}]),
    ],
    "required": [
        (obj("a", a=INT), [{"a": 1}], [{}]),
        (obj("a b", a=INT, b=INT), [{"b": 1, "a": 2}], [{"a": 1}, {"b": 1}]),
        (obj("b", a=INT, b=INT), [{"b": 1}], [{"a": 1}]),
        (obj("a", rest=True, a=INT), [{"x": 1, "a": 1}], [{"x": 1}]),
        (arr(items=obj("a", a=NULL)), [[], [{"a": None}]], [[{}]]),
    ],
    "additionalProperties": [
        ({"type": "object"}, [{}, {"a": [1, {"b": None}]}], [[], None]),
        ({"type": "object", "additionalProperties": True}, [{"a": "x"}], [0]),
        ({"type": "object", "additionalProperties": False}, [{}], [{"a": 1}]),
        ({"type": "object", "additionalProperties": INT}, [{"a": 1, "b": 2}], [{"a": "1"}]),
        (arr(items=obj(rest=NULL)), [[{"a": None}]], [[{"a": 1}]]),
        (obj("a", rest=FLAG, a=INT), [{"a": 1, "b": True}], [{"a": True}, {"a": 1, "b": 1}]),
    ],
    "items": [
        (arr(), [[], [1, "a", [None]]], [{}, 0]),
        (arr(items=INT), [[], [1, 2]], [["1"], [1, None]]),
        (arr(items=arr(items=FLAG)), [[[], [True]]], [[True], [[1]]]),
        (arr(items=obj("a", a=INT)), [[{"a": 1}]], [[{}]]),
        (arr(items=True, maxItems=1), [["x"], []], [[1, 2]]),
        (arr(prefixItems=[INT], items=False), [[1], []], [[1, 2], ["x"]]),
    ],
    "prefixItems": [
        (arr(prefixItems=[INT, FLAG], items=False, minItems=2), [[1, True]], [[1], [True, 1]]),
        (arr(prefixItems=[INT], items=FLAG), [[1], [1, True]], [[1, 1]]),
        (arr(prefixItems=[NULL]), [[None, 5], []], [[5]]),
        (arr(prefixItems=[TEXT, TEXT], minItems=2, maxItems=2), [["a", "b"]], [["a"]]),
        (arr(prefixItems=[arr(prefixItems=[INT])]), [[[1]]], [[["x"]]]),
    ],
    "minItems": [
        (arr(minItems=1), [[0], [1, 2]], [[]]),
        (arr(minItems=0), [[]], [0]),
        (arr(items=INT, minItems=2), [[1, 2]], [[1]]),
        (arr(items=INT, minItems=2, maxItems=2), [[1, 2]], [[1], [1, 2, 3]]),
        (obj("a", a=arr(minItems=1)), [{"a": [0]}], [{"a": []}]),
    ],
    "maxItems": [
        (arr(maxItems=0), [[]], [[1]]),
        (arr(maxItems=2), [[], [1, 2]], [[1, 2, 3]]),
        (arr(items=FLAG, maxItems=1), [[True]], [[True, True]]),
        (arr(items=arr(maxItems=1)), [[[1], [2]]], [[[1, 2]]]),
        (arr(maxItems=1000), [[0] * 1000], [[0] * 1001]),
    ],
    "minLength": [
        (text(minLength=1), ["a", "\n"], [""]),
        (text(minLength=2), ["éé", "\U0001f642\U0001f642"], ["\U0001f642"]),
        (text(minLength=0), [""], [0]),
        (text(minLength=3, maxLength=3), ["abc"], ["ab", "abcd"]),
        (arr(items=text(minLength=1)), [["a"]], [[""]]),
    ],
    "maxLength": [
        (text(maxLength=0), [""], ["a"]),
        (text(maxLength=2), ["", "é\n", "\U0001f642\U0001f642"], ["abc"]),
        (text(maxLength=5), ["\\\\\\\\\\"], ["\\\\\\\\\\\\"]),
        ({"type": ["string", "null"], "maxLength": 1}, ["a", None], ["ab"]),
        (text(maxLength=1000), ["x" * 1000], ["x" * 1001]),
    ],
    "pattern": [
        (text(pattern="^[A-Z]{3}-[0-9]+$"), ["ABC-1"], ["AB-1", "ABC-", "xABC-1", "ABC-1\n"]),
        (text(pattern=r"^(\+\d{1,2} )?(cat|dog)s?$"), ["cat", "+41 dogs"], ["+4cat", "dogcat", ""]),
        (text(pattern="^a?b*c+$"), ["c", "abbcc"], ["ab", "aac", ""]),
        (text(pattern=r"^\d{4}\.\w$"), ["2026.x"], ["2026x", "202.xx"]),
        (text(pattern="^#[0-9a-fA-F]{6}$"), ["#00ffAA"], ["#00ffA", "00ffAA1"]),
        (text(pattern="^[^a-z]{2,3}$"), ["AB", "1é2"], ["ab", "A"]),
    ],
    "format": [
        (text(format="date"), ["2024-02-29"], ["2023-02-29", "2024-2-9", "today"]),
        (text(format="date-time"), ["2024-02-29T23:59:59Z", "2024-01-01t00:00:00.5+02:00"],
         ["now", "2024-02-30T00:00:00Z", "2024-01-01T25:00:00Z"]),
        (text(format="uuid"), ["12345678-1234-1234-1234-123456789ABC"], ["1234", ""]),
        (obj("d", d=text(format="date")), [{"d": "1999-12-31"}], [{"d": "x"}]),
        ({"type": ["string", "null"], "format": "uuid"}, [None], ["x"]),
    ],
    "minimum": [
        (num("integer", minimum=3), [3, 400], [2, -1]),
        (num(minimum=-0.5), [-0.5, 0], [-0.6]),
        (num("integer", minimum=1, maximum=1), [1], [0, 2]),
        (num("integer", minimum=-3), [-3], [-4]),
        ({"type": ["integer", "null"], "minimum": 0}, [0, None], [-1]),
    ],
    "maximum": [
        (num("integer", maximum=3), [3, -400], [4]),
        (num(maximum=0.25), [0.25], [0.26, 1e9]),
        (num("integer", minimum=10, maximum=99), [10, 99], [9, 100]),
        (num(maximum=-1), [-1, -1.5], [0]),
        (arr(items=num("integer", maximum=0)), [[0]], [[1]]),
    ],
    "exclusiveMinimum": [
        (num("integer", exclusiveMinimum=3), [4], [3]),
        (num(exclusiveMinimum=0), [0.001], [0, -1]),
        (num(exclusiveMinimum=0, maximum=1), [1, 0.5], [0]),
        (num("integer", exclusiveMinimum=-1), [0], [-1]),
        (num("integer", exclusiveMinimum=1, exclusiveMaximum=3), [2], [1, 3]),
    ],
    "exclusiveMaximum": [
        (num("integer", exclusiveMaximum=3), [2], [3]),
        (num(exclusiveMaximum=1), [0.999], [1]),
        (num("integer", minimum=2, exclusiveMaximum=3), [2], [3, 1]),
        (num(exclusiveMaximum=-0.5), [-0.6], [-0.5, 0]),
        (num("integer", exclusiveMaximum=0), [-1], [0]),
    ],
    "enum": [
        ({"enum": ["a", "b"]}, ["a", "b"], ["c", "", None]),
        ({"enum": [1, 12, 123]}, [1, 12, 123], [2, 1234]),
        ({"enum": [None, True, "x", 1.5]}, [None, True, "x", 1.5], [False, 1]),
        ({"enum": ["é", "\U0001f642", 'q"']}, ["é", "\U0001f642", 'q"'], ["e"]),
        ({"type": "string", "enum": ["a", 1, None]}, ["a"], [1, None]),
        ({"enum": [{"a": [1, "x"]}, []]}, [{"a": [1, "x"]}, []], [{"a": [1]}, {}]),
    ],
    "const": [
        ({"const": "yes"}, ["yes"], ["no", "yess"]),
        ({"const": 0}, [0], [1, False]),
        ({"const": None}, [None], [0]),
        ({"const": {"b": 1, "a": [True]}}, [{"a": [True], "b": 1}], [{"b": 1}]),
        (obj("kind", kind={"const": "a", "type": "string"}), [{"kind": "a"}], [{"kind": "b"}]),
    ],
    "anyOf": [
        ({"anyOf": [INT, NULL]}, [1, None], ["1", 1.5]),
        ({"anyOf": [obj("a", a=INT), obj("b", b=INT)]}, [{"a": 1}, {"b": 1}], [{}, {"c": 1}]),
        (
            {"anyOf": [obj("k v", k={"const": "i"}, v=INT), obj("k v", k={"const": "t"}, v=TEXT)]},
            [{"k": "i", "v": 1}, {"k": "t", "v": "x"}],
            [{"k": "i", "v": "x"}, {"v": 1, "k": "t"}],
        ),
        (arr(items={"anyOf": [INT, arr(items=INT)]}), [[1, [2]]], [["x"], [[[1]]]]),
        ({"anyOf": [{"anyOf": [INT]}]}, [1], ["1"]),
    ],
    "$ref": [
        (TREE, [{"kids": []}, {"kids": [{"kids": []}]}], [{}, {"kids": [{}]}]),
        ({"$ref": "#/$defs/i", "$defs": {"i": INT}}, [1], ["1"]),
        (obj(a={"$ref": "#/$defs/n.1"}) | {"$defs": {"n.1": NULL}}, [{"a": None}], [{"a": 1}]),
        (obj("n", n={"$ref": "#/$defs/node"}) | {"$defs": {"node": NODE}},
         [{"n": {"next": {"next": None}}}], [{"n": None}, {"n": {"next": {}}}]),
        ({"$ref": "#/definitions/x", "definitions": {"x": FLAG}}, [True], [1]),
    ],
    "$defs": [
        (obj() | {"$defs": {"unused": INT}}, [{}], [{"a": 1}]),
        (arr(items={"$ref": "#/$defs/a"}) | {"$defs": {"a": INT}}, [[1]], [["x"]]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": INT}}, [1], ["x"]),
        (
            {"$ref": "#/$defs/even",
             "$defs": {"even": arr(items={"$ref": "#/$defs/odd"}, maxItems=1),
                       "odd": arr(items={"$ref": "#/$defs/even"}, minItems=1, maxItems=1)}},
            [[], [[[]]]],
            [[[]]],
        ),
        ({"anyOf": [{"$ref": "#/$defs/a"}, NULL], "$defs": {"a": TEXT}}, ["x", None], [1]),
    ],
    "definitions": [
        (arr(items={"$ref": "#/definitions/a"}) | {"definitions": {"a": INT}}, [[1]], [["x"]]),
        (obj() | {"definitions": {}}, [{}], [{"a": 1}]),
        ({"$ref": "#/definitions/a", "definitions": {"a": TEXT}}, ["x"], [1]),
        (INT | {"definitions": {"a": TEXT}, "$defs": {"a": INT}}, [1], ["x"]),
        (obj(a={"$ref": "#/definitions/A_1"}) | {"definitions": {"A_1": FLAG}}, [{}], [{"a": 1}]),
    ],
}  # fmt: skip


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
