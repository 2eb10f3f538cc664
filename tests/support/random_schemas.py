"""Random schemas out of the whitelisted keywords, and random values that nearly fit them.

Schemas here allow short values only, so that a model with nothing to say comes to an end.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

Json = dict[str, Any]

WORDS = ("a", "b", "name", "é", "a b", 'q"', "\\", "\n\t\x01", "\ua66e\U0001f9ff")
TEXTS: tuple[Json, ...] = (
    {"type": "string", "maxLength": 3},
    {"type": "string", "minLength": 1, "maxLength": 2},
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,3}$"},
    {"type": "string", "pattern": "^[a-c]?x{2,3}$"},
    {"type": "string", "pattern": "^(ab|[x-z]\\d{1,2}|Q{2}){1,2}$"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "enum": ["red", "green", "ü", "r\uff45d"]},
)
NUMBERS: tuple[Json, ...] = (
    {"type": "integer", "minimum": 0, "maximum": 9},
    {"type": "integer", "minimum": -20, "exclusiveMaximum": 300},
    {"type": "integer", "exclusiveMinimum": 3, "maximum": 5},
    {"type": ["integer", "null"], "minimum": 10, "maximum": 99},
)
STRINGS = (
    *("", "x", "AB-1", "QQ-123", "axx", "xxx", "ab", "\n", "\U0001f642", "four"),
    *("2024-02-29", "2024-02-31", "12345678-1234-1234-1234-123456789abc"),
)
CONSTANTS: tuple[Json, ...] = (
    {"type": "boolean"},
    {"type": "null"},
    {"const": {"k": [1, "x"]}},
    {"enum": [1, "1", None, 2.5, [True]]},
    {"enum": [1, 12, 123]},
)


def schema(random: Random) -> Json:
    """An object at the root, as answers and arguments are."""
    root = _object(random, 0)
    if random.random() < 0.3:
        root["$defs"] = {"node": _node(random)}
        root["properties"]["tree"] = {"$ref": "#/$defs/node"}
    return root


def numbers(random: Random) -> Json:
    """Bounds whole and fractional, exclusive and not, tiny and huge; steps; values."""

    def draw() -> float:
        kinds = [0, 1, -1, 0.5, 1e-6, 1e16, -1e16, 2**53, 2**63, 0.1, 99.99, -3.25, 1e-12]
        kinds += [2**53 + 1, -(2**53) - 1, 9_999_999_999_999_999, 123_456_789_012_345_678]
        return random.choice([random.choice(kinds), random.randint(-50, 50), random.random()])

    if random.random() < 0.15:
        return {"enum": [draw() for _ in range(random.randint(1, 4))]}
    schema: Json = {"type": random.choice(["integer", "number", ["number", "null"]])}
    names = ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"]
    for name in random.sample(names, random.randint(0, 3)):
        schema[name] = draw()
    if random.random() < 0.2:
        schema["multipleOf"] = random.choice([1, 2, 5, 0.5, 0.01, 0.1, 25])
    return schema


def _node(random: Random) -> Json:
    """A list that names itself."""
    node: Json = {
        "type": "object",
        "properties": {
            "value": random.choice(CONSTANTS),
            "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
        },
        "required": ["value", "next"],
        "additionalProperties": False,
    }
    return node


def _any(random: Random, depth: int) -> Json:
    kinds = [TEXTS, NUMBERS, CONSTANTS]
    draw = random.random()
    if depth < 3 and draw < 0.2:
        return _object(random, depth)
    if depth < 3 and draw < 0.35:
        return _array(random, depth)
    if depth < 3 and draw < 0.5:
        return {"anyOf": [_any(random, depth + 1) for _ in range(random.randint(1, 3))]}
    found: Json = {"description": "any", **random.choice(random.choice(kinds))}
    return found


def _object(random: Random, depth: int) -> Json:
    names = random.sample(WORDS, random.randint(1, 3))
    return {
        "type": "object",
        "title": "T",
        "properties": {name: _any(random, depth + 1) for name in names},
        "required": [name for name in names if random.random() < 0.7],
        "additionalProperties": False,
    }


def _array(random: Random, depth: int) -> Json:
    least = random.randint(0, 2)
    found: Json = {
        "type": "array",
        "items": _any(random, depth + 1),
        "minItems": least,
        "maxItems": least + random.randint(0, 2),
    }
    if random.random() < 0.3:
        found["prefixItems"] = [_any(random, depth + 1)]
    return found


def value(random: Random, schema: Json, root: Json, depth: int = 0) -> Any:
    """One that follows the schema, but for a slip now and then."""
    if random.random() < 0.06:
        return random.choice([None, 0, -1, 7, 2.5, "x", "", [], {}, {"a": 1}, True, [None]])
    if "$ref" in schema:
        return value(random, root["$defs"]["node"], root, depth + 1)
    if "anyOf" in schema:
        options = schema["anyOf"]
        return value(random, options[-1] if depth > 6 else random.choice(options), root, depth + 1)
    if "enum" in schema:
        return random.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    kinds = schema.get("type", "null")
    match random.choice(kinds) if isinstance(kinds, list) else kinds:
        case "object":
            names = [n for n in schema["properties"] if random.random() < 0.9]
            made = {n: value(random, schema["properties"][n], root, depth + 1) for n in names}
            return made | ({"odd": 1} if random.random() < 0.05 else {})
        case "array":
            first = schema.get("prefixItems", [])
            count = random.randint(schema.get("minItems", 0), schema.get("maxItems", 3) + 1)
            items = [*first, *[schema["items"]] * count][:count]
            return [value(random, item, root, depth + 1) for item in items]
        case "integer":
            return random.randint(-25, 310) if random.random() < 0.2 else random.randint(0, 9)
        case "string":
            return random.choice(STRINGS)
        case "boolean":
            return random.random() < 0.5
    return None


def written(random: Random, given: Any) -> str:
    """As some serialiser would write it."""
    if random.random() < 0.5:
        return json.dumps(given, ensure_ascii=random.random() < 0.5, separators=(",", ":"))
    return json.dumps(given, ensure_ascii=random.random() < 0.5)
