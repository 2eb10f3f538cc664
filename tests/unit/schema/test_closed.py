"""Objects are closed where one part of a schema alone says what they have."""

from __future__ import annotations

from typing import Any

import pytest

from trt_responses.schema.closed import closed

A: dict[str, Any] = {"type": "object", "properties": {"a": {}}}
NO_MORE = {"additionalProperties": False}
CLOSED: dict[str, tuple[Any, Any]] = {
    "an object": (A, A | NO_MORE),
    "without members": ({"properties": {}}, {"properties": {}} | NO_MORE),
    "a member": ({"properties": {"b": A}}, {"properties": {"b": A | NO_MORE}} | NO_MORE),
    "an element": ({"type": "array", "items": A}, {"type": "array", "items": A | NO_MORE}),
    "elements": ({"prefixItems": [A, True]}, {"prefixItems": [A | NO_MORE, True]}),
    "a definition": (
        {"$ref": "#/$defs/a", "$defs": {"a": A}},
        {"$ref": "#/$defs/a", "$defs": {"a": A | NO_MORE}},
    ),
    "alternatives": ({"anyOf": [A, {"type": "null"}]}, {"anyOf": [A | NO_MORE, {"type": "null"}]}),
    "a member named properties": (
        {"properties": {"properties": {"type": "string"}}},
        {"properties": {"properties": {"type": "string"}}} | NO_MORE,
    ),
}
OPEN: dict[str, Any] = {
    "any object": {"type": "object"},
    "others are allowed": A | {"additionalProperties": True},
    "others have a form": A | {"additionalProperties": {"type": "string"}},
    "others by their names": A | {"patternProperties": {"^x": {}}},
    "names have a form": A | {"propertyNames": {"pattern": "^x"}},
    "a member that is required and not listed": A | {"required": ["b"]},
    "parts together": {"allOf": [A, {"properties": {"b": {}}}]},
    "an alternative beside members": A | {"anyOf": [{"properties": {"b": {}}}]},
    "a reference beside members": A | {"$ref": "#/$defs/b", "$defs": {"b": {"required": ["b"]}}},
    "a condition deep within": {"items": {"properties": {"a": {}}, "if": A, "then": {}}},
    "values that look like schemas": {"enum": [{"properties": {}}], "default": {"properties": {}}},
}


@pytest.mark.parametrize(("schema", "told"), CLOSED.values(), ids=CLOSED)
def test_an_object_that_lists_its_members_has_no_others(schema: Any, told: Any) -> None:
    assert closed(schema) == told


@pytest.mark.parametrize("schema", OPEN.values(), ids=OPEN)
def test_an_object_of_which_more_is_said_stays_as_it_is(schema: Any) -> None:
    assert closed(schema) == schema
