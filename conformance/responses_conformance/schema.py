"""Judges JSON by the keywords that the kit's own schemas use."""

from __future__ import annotations

from typing import Any

from responses_conformance.client import Json

KINDS: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}


def departure(value: Any, schema: Json, at: str = "it") -> str | None:
    """Why a value does not follow the schema; None if it does."""
    kind = schema.get("type", "object")
    right = isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))
    if not right:
        return f"{at} is no {kind}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{at} is none of {schema['enum']}"
    if isinstance(value, dict):
        return _object(value, schema, at)
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return f"{at} has {len(value)} items"
        found = (departure(each, schema["items"], f"{at}[{n}]") for n, each in enumerate(value))
        return next(filter(None, found), None)
    if isinstance(value, int) and value < schema.get("minimum", value):
        return f"{at} is below {schema['minimum']}"
    return None


def _object(value: Json, schema: Json, at: str) -> str | None:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"{at} has no `{name}`"
    for name, each in value.items():
        if name in known:
            if found := departure(each, known[name], f"`{name}`"):
                return found
        elif schema.get("additionalProperties") is False:
            return f"{at} has `{name}`, which the schema does not know"
    return None
