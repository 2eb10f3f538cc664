"""Rules of a script: files that are read or refused, and which rule holds."""

from __future__ import annotations

import json
import re
from random import Random
from typing import TYPE_CHECKING

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from tests.support import random_schemas
from trt_responses.errors import UsageError
from trt_responses.features.script.fill import NoValue, departs, value_for
from trt_responses.features.script.rules import (
    Request,
    Tool,
    When,
    holds,
    load,
    parsed,
    script_of,
)
from trt_responses.features.script.scene import Header, Message, Scene

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.features.script.fill import Schema

WEATHER = Tool("get_weather", "functions.get_weather", "The weather of a city", {})
MAIL = Tool("sendEmail", "functions.sendEmail", "Writes to a person", {})
RESULT = Message(Header("functions.get_weather", "commentary", "assistant"), "18 degrees")


def scene(question: str = "", *results: Message, turns: int = 1) -> Scene:
    return Scene((question,) * turns, results, turns, (), (), None)


def test_yaml_with_rules_a_bare_list_and_jsonl_are_read(tmp_path: Path) -> None:
    whole = parsed("seed: 7\nrules:\n- when: {text: a}\n  say: b\n- say: {n: 1}\n", "s.yaml")
    assert (whole.seed, len(whole.rules), whole.rules[1].say) == (7, 2, {"n": 1})
    assert parsed("- say: a\n", "s.yaml").rules[0].say == "a"
    assert parsed(json.dumps([{"say": "\U0001f600"}]), "s.json").rules[0].say == "\U0001f600"
    (tmp_path / "s.jsonl").write_text('{"say": "a"}\n\n{"call": {"name": "auto"}}\n')
    assert [rule.calls[0].name for rule in load(f"{tmp_path}/s.jsonl").rules[1:]] == ["auto"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must hold `rules`"),
        ("rules: []", "must hold `rules`"),
        ("rules: [{say: a}]\nsed: 1", "must hold `rules`"),
        ("- {say: [", "is not YAML"),
        ("- {sya: a}", "rule 1: sya"),
        ("- {say: a}\n- {when: {regex: '('}}", r"rule 2: when.regex: no regular expression"),
        ("- {refuse: {status: 200}}", "rule 1: refuse.status"),
        ("- {raw: a, say: b}", "rule 1: raw stands alone"),
        ("- {when: {times: 0}}", "rule 1: when.times"),
        (r'- {say: {a: ["\ud800"]}}', r"rule 1: '\\ud800' is half a surrogate pair"),
        (r'- {call: {name: w, arguments: {"\udc00": 1}}}', r"rule 1: '\\udc00' is half"),
    ],
)
def test_a_wrong_file_is_refused_by_rule_and_key(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parsed(text, "s.yaml")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.yaml cannot be read \(No such file"):
        load(f"{tmp_path}/none.yaml")


@pytest.mark.parametrize(
    ("when", "does", "does_not"),
    [
        (When(text="BERN"), scene("Is Bern far?"), scene("Is Rome far?")),
        (When(regex=r"\d+ km"), scene("It is 12 km"), scene("It is 12 miles")),
        (When(result=True), scene("a", RESULT), scene("a")),
        (When(result=False), scene("a"), scene("a", RESULT)),
        (When(result="18"), scene("a", RESULT), scene("18")),
        (When(tool="get_weather"), scene("a", RESULT), scene("a")),
        (When(turn=2), scene("a", turns=2), scene("a")),
        (When(text="a", result=True), scene("a", RESULT), scene("b", RESULT)),
    ],
)
def test_a_rule_holds_by_what_the_prompt_says(when: When, does: Scene, does_not: Scene) -> None:
    assert holds(when, does, Request())
    assert not holds(when, does_not, Request())


def test_a_rule_holds_by_what_the_request_says() -> None:
    one = Request("m", 3, (WEATHER,))
    for when in (When(model="m"), When(request=3), When(offers="get_weather")):
        assert holds(when, scene(), one)
        assert not holds(when, scene(), Request("n", 4, (MAIL,)))


def test_a_rule_that_has_held_often_enough_is_passed() -> None:
    script = script_of([{"when": {"times": 2}, "say": "first"}, {"say": "then"}], "given")
    said = [rule.say for _ in range(3) if (rule := script.rule_for(scene(), Request()))]
    assert said == ["first", "first", "then"]
    assert script_of([{"when": {"turn": 9}}], "given").rule_for(scene(), Request()) is None


def test_the_nearest_tool_shares_words_with_the_question() -> None:
    both = Request(tools=(WEATHER, MAIL))
    assert both.nearest("How is the weather in the cities?") == WEATHER
    assert both.nearest("Send an email to Olga") == MAIL
    assert both.nearest("Hello!") is None
    assert Request(tools=(WEATHER, MAIL), must_call=True).nearest("Hello!") == WEATHER
    assert Request(must_call=True).nearest("Hello!") is None


QUESTION = 'Book "Hotel du Lac" in Geneva for 3 nights'


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        ({"type": "string"}, "Hotel du Lac"),
        ({"type": "integer"}, 3),
        ({"type": "integer", "minimum": 5, "multipleOf": 4}, 8),
        ({"type": "number", "exclusiveMaximum": 3, "multipleOf": 0.5}, 2.5),
        ({"enum": ["x", "y"]}, "x"),
        ({"const": 4}, 4),
        ({"type": ["null", "boolean"]}, True),
        ({"type": "string", "format": "date"}, "2026-01-31"),
        ({"type": "string", "minLength": 15}, "Hotel du Lacxxx"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 2}, ["Hotel du Lac", "Geneva"]),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 3),
        ({"allOf": [{"type": "integer"}, {"minimum": 9}]}, 9),
        ({"type": "string", "pattern": r"^\ud83d\uDE00$"}, "\U0001f600"),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, 3),
        (
            {"type": "object", "properties": {"city": {}, "n": {"type": "integer"}}},
            {"city": "Hotel du Lac", "n": 3},
        ),
        ({"type": "object", "minProperties": 1}, {"key1": "Hotel du Lac"}),
    ],
)
def test_a_value_is_made_from_a_schema_with_words_of_the_question(
    schema: Schema, made: object
) -> None:
    assert value_for(schema, QUESTION) == made


def test_a_text_of_which_the_question_says_nothing_is_the_name_of_its_place() -> None:
    schema = {"type": "object", "properties": {"street_name": {"type": "string"}}}
    assert value_for(schema, "hello") == {"street_name": "street name"}


def test_a_schema_that_allows_nothing_easy_is_said() -> None:
    with pytest.raises(NoValue):
        value_for({"type": "string", "pattern": "^[0-9]{4}-x$", "maxLength": 3}, QUESTION)
    for name in ("minLength", "minItems", "minProperties"):
        with pytest.raises(NoValue, match=f"{name}.* is too large"):
            value_for({"type": ["string", "array", "object"], name: 10**9}, QUESTION)
    loop = {"$ref": "#"}
    with pytest.raises(NoValue, match="cannot be followed"):
        value_for(loop, QUESTION)


def test_a_text_departs_from_a_schema_with_a_reason() -> None:
    assert departs({"type": "integer"}, "4") is None
    assert "not JSON" in (departs({"type": "integer"}, "four") or "")
    assert departs({"type": "integer"}, '"4"') is not None


def test_notes_that_an_agent_puts_before_the_question_are_passed_over() -> None:
    noted = "<system-reminder>\nIt is 2026.\n</system-reminder>\n\nTo Rome for 3 nights"
    assert scene(noted).question == "To Rome for 3 nights"
    assert scene("<all>of it</all>").question == "<all>of it</all>"


@pytest.mark.parametrize(
    "pattern",
    [
        r"^\d{4}-\d{2}-\d{2}$",
        r"^(?:[01]\d|2[0-3]):[0-5]\d$",
        r"^https?://[\w.-]+(/\S*)?$",
        r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$",
        r"^[a-z0-9]+(?:-[a-z0-9]+)*$",
        r"^\$\d+\.\d{2}$|^free$",
        r"^(?<a>\d{1,3}\.){3}.$",
        r"^[\u4e00-\u9fff]{2,}$",
        r"^[\x41-\x43]+?\x2d\u002d$",
        "foo",
    ],
)
def test_a_pattern_is_followed_by_a_short_text(pattern: str) -> None:
    for seed in range(20):
        made = value_for({"type": "string", "pattern": pattern}, "Hello", seed)
        assert re.search(pattern.replace("(?<", "(?P<"), made)
        assert len(made) < 40
    least = {"type": "string", "pattern": "^[a-z]+$", "minLength": 30, "maxLength": 80}
    assert 30 <= len(value_for(least, "")) <= 80


@pytest.mark.parametrize("pattern", [r"^(?=a)\w+$", r"(a)\1", r"\bword", r"\p{L}", "[b-a]"])
def test_a_pattern_that_no_text_is_made_up_for_is_refused_by_its_part(pattern: str) -> None:
    with pytest.raises(NoValue):
        value_for({"type": "string", "pattern": pattern}, "Hello")


def test_values_of_random_schemas_are_valid_by_another_judge_and_short() -> None:
    for seed in range(150):
        schema = random_schemas.schema(Random(seed))
        value = value_for(schema, "A trip to 'Rome' for 3 nights", seed)
        assert Draft202012Validator(schema, format_checker=FormatChecker()).is_valid(value), schema
        assert len(json.dumps(value)) < 1000


def test_a_tree_that_names_itself_twice_stays_small() -> None:
    branch = {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}
    tree = {"properties": {"left": branch, "right": branch}, "required": ["left", "right"]}
    made = value_for({"$ref": "#/$defs/tree", "$defs": {"tree": tree | {"type": "object"}}}, "")
    assert len(json.dumps(made)) < 1000
