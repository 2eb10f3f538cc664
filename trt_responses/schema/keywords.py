"""Checks the types of a schema's keywords, before any other module reads them."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from trt_responses.schema.documents import SINGLE, Document, parts
from trt_responses.schema.refusals import refused

MAX_DEPTH = 48
"""Maximum nesting of schemas; each takes two of llguidance's 128 levels of JSON."""
MAX_SCHEMAS = 20_000

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_bound(value: Any) -> bool:
    """Whether a value is a number, or null, which some tools write for no bound."""
    return value is None or _is_number(value)


def _is_count(value: Any) -> bool:
    return value is None or (_is_number(value) and value >= 0 and value == int(value))


def _is_schema(value: object) -> bool:
    return isinstance(value, dict | bool)


def _are_types(value: object) -> bool:
    types = value if isinstance(value, list) else [value]
    return types != [] and all(isinstance(kind, str) and kind in TYPES for kind in types)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _are_needs(value: object) -> bool:
    return isinstance(value, dict) and all(
        _are_names(needs) or _is_schema(needs) for needs in value.values()
    )


KINDS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("type", _are_types, f"must be one or more of {', '.join(TYPES)}"),
    ("minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains",
     _is_count, "must be a whole number"),
    ("minimum maximum", _is_bound, "must be a number"),
    ("exclusiveMinimum exclusiveMaximum",
     lambda value: isinstance(value, bool) or _is_bound(value), "must be a number"),
    ("multipleOf", lambda value: value is None or (_is_number(value) and value > 0),
     "must be more than 0"),
    ("pattern", lambda value: isinstance(value, str), "must be a regular expression"),
    # In draft 3 `required` is a boolean inside the member.
    ("required", lambda value: isinstance(value, bool) or _are_names(value),
     "must be a list of names"),
    ("properties patternProperties $defs definitions dependentSchemas",
     lambda value: isinstance(value, dict), "must be an object of schemas"),
    ("dependentRequired dependencies", _are_needs, "must be an object of lists of names"),
    ("anyOf oneOf allOf", lambda value: isinstance(value, list) and value != [],
     "must be a list of schemas"),
    ("prefixItems", lambda value: isinstance(value, list), "must be a list of schemas"),
    ("items", lambda value: isinstance(value, list) or _is_schema(value), "must be a schema"),
    (" ".join(word for word in SINGLE if word != "items"), _is_schema, "must be a schema"),
)  # fmt: skip
"""Keywords, the check of their values, and its error text. Other keywords may be anything."""
_KIND_OF = {word: (fits, what) for words, fits, what in KINDS for word in words.split()}


def check_keywords(document: Document, place: str, check_time: Callable[[str], None]) -> None:
    """Check each reachable schema of a document. Raises `InvalidSchema`."""
    seen: set[int] = set()
    waiting: list[tuple[object, str, int]] = [(document.root, place, 0)]
    while waiting:
        schema, where, depth = waiting.pop()
        if isinstance(schema, bool) or id(schema) in seen:
            continue
        if not isinstance(schema, dict):
            raise refused(where, "must be a schema: an object")
        check_time(place)
        seen.add(id(schema))
        if depth > MAX_DEPTH:
            raise refused(where, f"is nested too deep: more than {MAX_DEPTH} levels")
        if len(seen) > MAX_SCHEMAS:
            raise refused(place, f"is too large: more than {MAX_SCHEMAS} schemas")
        for keyword in schema.keys() & _KIND_OF.keys():
            fits, what = _KIND_OF[keyword]
            if not fits(schema[keyword]):
                raise refused(where, what, keyword)
        waiting += [(inner, f"{where}.{step}", depth + 1) for step, inner in parts(schema)]
        if (target := document.target(schema.get("$ref"))) is not None:
            waiting.append((target, f"{where}.$ref", 0))
