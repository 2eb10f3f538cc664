"""What a text of each keyword may be: values that follow a schema, and values that do not.

Budget: 5 s on one core.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.keyword_cases import CASES, INT, NULL, Json, obj
from tests.support.schema_judge import valid
from tests.support.schemas import compact, form, verdict


@pytest.mark.parametrize(
    ("schema", "lawful", "unlawful"), [case for cases in CASES.values() for case in cases]
)
def test_a_schema_takes_what_it_should_and_nothing_else(
    schema: Json, lawful: list[Any], unlawful: list[Any]
) -> None:
    found = form(schema)
    for value in lawful:
        assert valid(value, schema, schema), "the judge says otherwise"
        assert verdict(found, compact(value)) == "followed", value
    for value in unlawful:
        assert not valid(value, schema, schema), "the judge says otherwise"
        assert verdict(found, compact(value)) != "followed", value


ANNOTATIONS = (
    *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
    *("$schema", "$comment", "$id", "id", "x-anything", "example", "contentEncoding", "strict"),
    *("discriminator", "x-guidance", "extends", "Type", "$vocabulary", "contentMediaType"),
)


@pytest.mark.parametrize("keyword", ANNOTATIONS)
def test_an_annotation_changes_nothing_and_is_not_given_to_the_engine(keyword: str) -> None:
    plain = obj("a", a=INT, b={"anyOf": [NULL]})
    marked = obj("a", a=INT | {keyword: "x"}, b={"anyOf": [NULL], keyword: 5}) | {keyword: []}
    assert form(marked).source == form(plain).source
    assert json.dumps(keyword) not in form(marked).source
