"""Writes a call's arguments as JSON text incrementally, from keys and values that are text.

The model writes values as text, and the tool's schema decides their JSON type: a string if the
schema allows one, and else the value that the text spells. No marks and no ids here.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from typing import Any

TYPES = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})
TEXT = frozenset({"string"})
DEPTH = 8
"""Maximum depth of a search for the types that a schema allows."""

PYTHON = {"True": "true", "False": "false", "None": "null"}
"""Python's spellings, which some templates have shown the model."""


def types_of(schema: object, root: object, depth: int = DEPTH) -> frozenset[str]:
    """The JSON types that a schema allows; all if it does not restrict them."""
    if not isinstance(schema, dict) or depth == 0:
        return TYPES
    types = TYPES
    named = schema.get("type")
    if isinstance(named, str):
        types = frozenset({named})
    elif isinstance(named, list):
        types = frozenset(one for one in named if isinstance(one, str))
    if isinstance(reference := schema.get("$ref"), str):
        types &= types_of(_target(reference, root), root, depth - 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(several := schema.get(key), list) and several:
            types &= frozenset().union(*(types_of(one, root, depth - 1) for one in several))
    if isinstance(all_of := schema.get("allOf"), list):
        for one in all_of:
            types &= types_of(one, root, depth - 1)
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list) and values:
        kinds = frozenset(map(type_of, values))
        types &= kinds | {"number"} if "integer" in kinds else kinds
    return types or TYPES


def _target(reference: str, root: object) -> object:
    at = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        at = at.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(at, dict) else None
    return at


def type_of(value: object) -> str:
    """The JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


class ArgumentWriter:
    """Writes one call's arguments. `say` receives pieces of JSON text; joined they are an
    object."""

    def __init__(self, schema: object, say: Callable[[str], None]) -> None:
        properties = schema.get("properties") if isinstance(schema, dict) else None
        self._schema = schema
        self._properties: Mapping[str, Any] = properties if isinstance(properties, dict) else {}
        self._say = say
        self._open = False
        self._types = TYPES
        self._streams = False
        self._waiting: list[str] = []

    def key(self, key: str) -> None:
        """Begin a value under this key; `text` and `end` follow."""
        self._say((", " if self._open else "{") + json.dumps(key, ensure_ascii=False) + ": ")
        self._open = True
        known = key in self._properties
        self._types = types_of(self._properties[key], self._schema) if known else TEXT
        self._streams = self._types == TEXT or self._types == TYPES
        if self._streams:
            self._say('"')

    def text(self, text: str) -> None:
        """Add to the value. A string is written at once, any other value when it is complete."""
        if not self._streams:
            self._waiting.append(text)
        elif text:
            self._say(json.dumps(text, ensure_ascii=False)[1:-1])

    def end(self) -> None:
        if self._streams:
            self._say('"')
            return
        text, self._waiting = "".join(self._waiting), []
        self._say(self._typed(text))

    def cut(self) -> None:
        """Write an incomplete value as it is: the output ended inside it."""
        text, self._waiting = "".join(self._waiting), []
        if text:
            self._say(text)

    def close(self) -> None:
        self._say("}" if self._open else "{}")

    def _typed(self, text: str) -> str:
        """A value as JSON text: unchanged if it is JSON of an allowed type, else as a string."""
        bare = text.strip()
        bare = PYTHON.get(bare, bare)
        allowed = self._types & {"null"} if "string" in self._types else self._types
        try:
            kind = type_of(json.loads(bare, parse_constant=_refused))
        except (ValueError, RecursionError):
            bare = _from_python(bare) if allowed & {"object", "array"} else bare
            kind = {"{": "object", "[": "array"}.get(bare[:1], "")
        if kind in allowed or (kind == "integer" and "number" in allowed):
            return bare
        return json.dumps(text, ensure_ascii=False)


def _from_python(text: str) -> str:
    """A dict or list of Python as JSON: some templates write those. Empty for any other text."""
    try:
        value = ast.literal_eval(text)
        return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else ""
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ""


def _refused(name: str) -> None:
    raise ValueError(name)
