"""JSON Schema's rules over a parsed value: the judge of what was guided. Shares no code with it."""

from __future__ import annotations

import math
import re
from datetime import date, datetime
from typing import Any
from uuid import UUID

TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
}


def valid(value: Any, schema: Any, root: Any) -> bool:
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        target = root
        for step in schema["$ref"].removeprefix("#").split("/")[1:]:
            target = target[step]
        if not valid(value, target, root):
            return False
    if "anyOf" in schema and not any(valid(value, option, root) for option in schema["anyOf"]):
        return False
    if "enum" in schema and not any(same(value, option) for option in schema["enum"]):
        return False
    if "const" in schema and not same(value, schema["const"]):
        return False
    types = schema.get("type", [])
    types = types if isinstance(types, list) else [types]
    if types and not any(is_type(value, kind) for kind in types):
        return False
    match value:
        case bool() | None:
            return True
        case str():
            return text(value, schema)
        case int() | float():
            return number(value, schema)
        case list():
            return array(value, schema, root)
        case _:
            return members(value, schema, root)


def is_type(value: Any, kind: str) -> bool:
    if kind in ("number", "integer"):
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        return numeric and (kind == "number" or isinstance(value, int))
    return isinstance(value, TYPES[kind])


def same(one: Any, other: Any) -> bool:
    """JSON's equality: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def text(value: str, schema: Any) -> bool:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", math.inf):
        return False
    if "pattern" in schema and not re.search(schema["pattern"] + r"(?!\n)", value, re.ASCII):
        return False
    parse = {"date": date.fromisoformat, "date-time": moment, "uuid": UUID}
    try:
        parse.get(schema.get("format", ""), str)(value)  # type: ignore[operator]
    except ValueError:
        return False
    return True


def moment(value: str) -> datetime:
    return datetime.fromisoformat(value.upper())


def number(value: float, schema: Any) -> bool:
    inside: bool = schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
    above: bool = schema.get("exclusiveMinimum", -math.inf) < value
    below: bool = value < schema.get("exclusiveMaximum", math.inf)
    return inside and above and below


def array(value: list[Any], schema: Any, root: Any) -> bool:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf):
        return False
    first = schema.get("prefixItems", [])
    rest = schema.get("items", True)
    return all(
        valid(item, first[place] if place < len(first) else rest, root)
        for place, item in enumerate(value)
    )


def members(value: dict[str, Any], schema: Any, root: Any) -> bool:
    if any(name not in value for name in schema.get("required", [])):
        return False
    listed, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    return all(valid(item, listed.get(name, rest), root) for name, item in value.items())
