"""A schema that is no schema is refused in words, wherever in it the fault stands."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.schemas import form
from trt_responses.schema.keywords import KINDS
from trt_responses.schema.refusals import InvalidSchema

if TYPE_CHECKING:
    from collections.abc import Iterator

COLLECTION = Path(__file__).parents[2] / "data" / "schemas" / "typescript.json"
KEYWORDS = [*" ".join(words for words, _, _ in KINDS).split(), "$ref", "enum", "const", "format"]
ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, 1e300, 10**30, "x", "", "#", "(?=a)", "[", "date"),
    *([], {}, [1], ["a"], [[]], {"a": 1}, {"$ref": "#"}, {"a": {"enum": ["a"], "minLength": "x"}}),
]
VALUES: list[Any] = [None, True, 0, 1.5, "a", [], [1, "a"], {}, {"a": 1, "b": [{}]}]


@pytest.mark.parametrize(
    ("schema", "param"),
    [
        ({"type": "string", "enum": ["a"], "minLength": "x"}, "minLength"),
        ({"const": "a", "pattern": 1}, "pattern"),
        ({"enum": [1], "multipleOf": 0}, "multipleOf"),
        ({"enum": [1], "oneOf": {"type": "string"}}, "oneOf"),
        ({"enum": [1], "dependencies": ["a"]}, "dependencies"),
        ({"if": 1}, "if"),
        ({"type": "string", "format": [], "pattern": "(?=a)"}, "pattern"),
        ({"const": {}, "dependencies": {"a": {"minLength": "x"}}}, "dependencies.a.minLength"),
        ({"const": 1, "anyOf": [{"$ref": "#/x"}], "x": {"maximum": "x"}}, "anyOf[0].$ref.maximum"),
    ],
)
def test_what_no_guide_reads_is_looked_at_too(schema: Any, param: str) -> None:
    """The judge reads it, and may not stumble over it."""
    with pytest.raises(InvalidSchema) as refusal:
        form(schema)
    assert refusal.value.param == f"text.format.schema.{param}"


def test_a_bound_of_null_is_none() -> None:
    found = form({"type": "string", "minLength": None, "maxLength": None})
    assert found.judge is not None
    assert found.judge.departure("a") is None


def test_odd_values_of_keywords_are_refused_or_read() -> None:
    """300 schemas that tools write, with keywords of odd values put in; and each is judged."""
    random = Random(15)
    cases = [case["schema"] for case in json.loads(COLLECTION.read_text())]
    short = [case for case in cases if len(str(case)) < 1_000]
    refused = 0
    for _ in range(300):
        schema = deepcopy(random.choice(short))
        for _ in range(random.randint(1, 3)):
            random.choice(list(objects(schema)))[random.choice(KEYWORDS)] = deepcopy(
                random.choice(ODD)
            )
        for strict in (True, False):
            try:
                found = form(schema, strict=strict)
            except InvalidSchema:
                refused += 1
                continue
            assert found.judge is not None
            for value in VALUES:
                found.judge.departure(value)
    assert 200 < refused < 600


def objects(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from objects(inner)
