"""The judge against `jsonschema`, keyword by keyword and over random values; and its bounds."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import jsonschema
import pytest

from tests.support.schemas import compact
from trt_responses.schema.follow import AT_ONCE_STEPS
from trt_responses.schema.judge import Judge, Unreadable, read
from trt_responses.schema.matching import Expressions
from trt_responses.schema.refusals import OutOfSteps

VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 1.0, 1.5, 2.5, 10, 100, 1e3, -7),
    *("", "a", "ab", "abc", "1", "é", "2024-02-29", [], [1], [1, 1], [1, 2, 3], ["a", 1], [[], []]),
    *({}, {"a": 1}, {"a": "x"}, {"b": 1}, {"a": 1, "b": 2}, {"a": {"a": {}}}, {"c": None}, [None]),
    *([{"a": 1}, {"a": 1.0}], [True, 1], {"a": [1, "x"], "d": {}}),
]
SCHEMAS: list[dict[str, Any]] = [
    *({"type": kind} for kind in ("object", "array", "string", "number", "integer", "boolean")),
    {"type": ["null", "integer"]},
    {"enum": [1, "a", None, [1], {"a": 1}]},
    {"const": {"a": 1.0}},
    {"minimum": 1, "exclusiveMaximum": 2.5},
    {"multipleOf": 0.5},
    {"minLength": 1, "maxLength": 2},
    {"pattern": "^a|b$"},
    {"minItems": 1, "maxItems": 2, "uniqueItems": True},
    {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
    {"contains": {"const": 1}, "maxContains": 1},
    {"contains": {"const": 1}, "minContains": 0},
    {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
    {"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": {"type": "integer"}},
    {"required": ["a"], "maxProperties": 1},
    {"minProperties": 1, "propertyNames": {"maxLength": 1, "pattern": "a"}},
    {"dependentRequired": {"a": ["b"]}},
    {"dependentSchemas": {"a": {"required": ["b"]}}},
    {"not": {"type": "string"}},
    {"if": {"type": "integer"}, "then": {"minimum": 1}, "else": {"not": {"type": "object"}}},
    {"anyOf": [{"type": "string"}, {"minimum": 1}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
    {"allOf": [{"minimum": 0}, {"maximum": 2}]},
    {"properties": {"a": {"$ref": "#"}}, "additionalProperties": False},
    {"$ref": "#/$defs/x", "$defs": {"x": {"type": "integer"}}, "minimum": 1},
]


def departs(schema: Any, text: str) -> str:
    departure = Judge(schema, Expressions()).departure(read(text))
    return "" if departure is None else str(departure)


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_each_keyword_says_what_jsonschema_says(schema: dict[str, Any]) -> None:
    theirs = jsonschema.Draft202012Validator(schema)
    for value in VALUES:
        assert bool(departs(schema, compact(value))) is not theirs.is_valid(value), value


def test_random_conjunctions_say_what_jsonschema_says() -> None:
    random = Random(15)
    for _ in range(250):
        inner = random.sample([s for s in SCHEMAS if "$ref" not in str(s)], 3)
        schema = {**inner[0], "properties": {"a": inner[1], "d": inner[2]}}
        theirs = jsonschema.Draft202012Validator(schema)
        for value in random.sample(VALUES, 8):
            nested = random.choice([value, {"a": value}, {"a": value, "d": value}])
            assert bool(departs(schema, compact(nested))) is not theirs.is_valid(nested)


@pytest.mark.parametrize(
    ("schema", "text", "says"),
    [
        ({"minimum": 3}, "2.50", "at '$': 2.5 is less than 3"),
        ({"items": {"properties": {"b": {"type": "null"}}}}, '[{},{"b":1}]', "at '$[1].b': 1 is"),
        ({"required": ["b"]}, "{}", "'b' is missing"),
        ({"multipleOf": 0.01}, "0.105", "is no multiple of 0.01"),
        ({"exclusiveMinimum": True, "minimum": 0}, "0", "is not more than 0"),
        ({"const": 9007199254740993}, "9007199254740992", "is not 9007199254740993"),
        ({"enum": ["x" * 100]}, '"' + "y" * 100 + '"', "y…"),
        (
            {"anyOf": [{"type": "null"}, {"properties": {"a": {"type": "null"}}}]},
            '{"a":1}',
            "at '$.a': 1 is not of type null",
        ),
        ({"type": "string", "nullable": True}, "1", "not of type string"),
    ],
)
def test_a_departure_says_where_and_why(schema: Any, text: str, says: str) -> None:
    assert says in departs(schema, text)


def test_numbers_are_compared_as_they_are_written() -> None:
    assert departs({"multipleOf": 0.01}, "10.25") == ""
    assert departs({"maximum": 0.3}, "0.30000000000000001") != ""
    assert departs({"type": "integer"}, "12345.0") == ""
    assert departs({"type": "string", "nullable": True}, "null") == ""


@pytest.mark.parametrize("text", ["1e400", "-" + "9" * 400, "NaN", "[1,", "[" * 5_000, '{"a":'])
def test_what_readers_do_not_take_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        read(text)


def test_of_a_name_that_comes_twice_the_last_counts() -> None:
    schema = {"properties": {"a": {"type": "integer"}}}
    assert departs(schema, '{"a":"x","a":1}') == ""
    assert departs(schema, '{"a":1,"a":"x"}') != ""


def test_steps_are_bounded_and_alternatives_judged_once() -> None:
    names = [f"d{n}" for n in range(40)]
    doubled: dict[str, Any] = {
        name: {"allOf": [{"$ref": f"#/$defs/{after}"}] * 2} for name, after in pairwise(names)
    }
    doubled["d39"] = {"type": "integer"}
    assert departs({"$defs": doubled, "$ref": "#/$defs/d0"}, "1") == ""
    judge = Judge({"items": {"type": "integer"}}, Expressions())
    assert judge.departure([1.5] * 100) is not None
    with pytest.raises(OutOfSteps):
        judge.departure_within(50, [float(n) for n in range(100)])
    deep = Judge({"items": {"$ref": "#"}}, Expressions()).departure(read("[" * 200 + "]" * 200))
    assert deep is not None
    assert "too deep" in str(deep)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"anyOf": [{"minimum": n} for n in range(10, 500)] + [{}]}}, list(range(9))),
        ({"items": {"pattern": "^[a-z]*$"}}, [f"x{'y' * n}" for n in range(200)]),
        ({"patternProperties": {f"^a{n}": {} for n in range(200)}}, {"b": 1, "c": 1}),
        ({"items": {"anyOf": [{"const": list(range(50_000))}, {}]}}, [1]),
        ({"enum": [f"value {n}" for n in range(9_000)]}, "value 1"),
    ],
)
def test_what_takes_long_is_not_judged_at_once(schema: Any, value: Any) -> None:
    judge = Judge(schema, Expressions())
    with pytest.raises(OutOfSteps):
        judge.departure_within(AT_ONCE_STEPS, value)
    judge.departure(value)
