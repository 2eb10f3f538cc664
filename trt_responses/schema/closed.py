"""A schema with its objects closed: they have the members that it lists, and no others.

A server of tools often lists a call's arguments and says nothing of others, which to JSON Schema
allows any. The model is shown the listed ones alone, and what it would make up besides is refused
or ignored by the server. Knows no guide and no request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trt_responses.schema.documents import HOLDERS, LISTS, SINGLE, parts

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_OTHERS = ("additionalProperties", "patternProperties", "propertyNames")
TOGETHER = ("anyOf", "oneOf", "$ref")
"""Beside `properties`, they speak of the same object."""
COMBINED = ("allOf", "if", "not", "dependentSchemas", "dependencies", "unevaluatedProperties")


def closed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema with each object closed that lists its members and says nothing of others. As it
    is where several parts of it may speak of one object: each would forbid what others list."""
    told: Mapping[str, Any] = schema if _combines(schema) else _closed(schema)
    return told


def _combines(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    if any(keyword in schema for keyword in COMBINED):
        return True
    if "properties" in schema and any(keyword in schema for keyword in TOGETHER):
        return True
    return any(_combines(part) for _, part in parts(schema))


def _closed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    told = dict(schema)
    for keyword in HOLDERS:
        if isinstance(held := schema.get(keyword), dict):
            told[keyword] = {name: _closed(part) for name, part in held.items()}
    for keyword in LISTS:
        if isinstance(held := schema.get(keyword), list):
            told[keyword] = [_closed(part) for part in held]
    for keyword in SINGLE:
        if isinstance(held := schema.get(keyword), dict):
            told[keyword] = _closed(held)
    if _says_all(schema):
        told["additionalProperties"] = False
    return told


def _says_all(schema: Mapping[str, Any]) -> bool:
    """Whether an object lists its members, those that it needs among them, and says no more."""
    listed, needed = schema.get("properties"), schema.get("required")
    if not isinstance(listed, dict) or any(keyword in schema for keyword in OF_OTHERS):
        return False
    return set(needed if isinstance(needed, list) else ()) <= listed.keys()
