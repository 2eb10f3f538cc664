"""The values of `enum` and `const` that a guide may write."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from trt_responses.schema.judge import Judge
from trt_responses.schema.matching import Expressions
from trt_responses.schema.numbers import DIGITS, LARGEST, WIDEST
from trt_responses.schema.refusals import refused

Schema = dict[str, Any]

MAX_VALUES = 10_000
"""Maximum values of one `enum`."""
MAX_SPELLED = 125_000
"""Maximum characters of all `enum` and `const` values in a schema: each takes about 350 bytes of
memory."""
CONTROL_SPELLING = re.compile(r"<\|\w+\|>")
SPELLS_CONTROL = "spells a control token, which a text must not contain"
_ANNOTATIONS = {"description", "title", "default"}


def allowed(
    root: Schema,
    schema: Schema,
    types: list[str] | None,
    place: str,
    expressions: Expressions,
    check_time: Callable[[str], None],
) -> list[Any]:
    """The values that the whole schema allows; keywords beside them are judged here. Empty if a
    guide can write none of them."""
    keyword = "enum" if "enum" in schema else "const"
    values = schema["enum"] if keyword == "enum" else [schema["const"]]
    if not isinstance(values, list) or not 0 < len(values) <= MAX_VALUES:
        raise refused(place, f"must be a list of 1 to {MAX_VALUES} values", keyword)
    siblings = {k: v for k, v in schema.items() if k not in (keyword, "$ref", *_ANNOTATIONS)}
    if siblings:
        definitions: Schema = {k: root[k] for k in ("$defs", "definitions") if k in root}
        judge = Judge({**definitions, **siblings}, expressions)
        matching = []
        for value in values:
            check_time(place)
            if judge.departure(value) is None:
                matching.append(value)
        values = matching
    if schema.get("nullable") is True and types is not None and None not in values:
        values = [*values, None]
    if not values:
        raise refused(place, "has no value that the rest of the schema allows", keyword)
    writable = [_whole(value) for value in values if _is_writable(value)]
    if CONTROL_SPELLING.search(orjson.dumps(writable).decode()):
        raise refused(place, SPELLS_CONTROL, keyword)
    return writable


def spelled_size(values: list[Any]) -> int:
    """The characters of values; those of lists and objects count twice, for white space."""
    return sum(
        len(orjson.dumps(value)) * (2 if isinstance(value, list | dict) else 1) for value in values
    )


def _is_writable(value: Any) -> bool:
    """Whether a guide can write a value: its numbers are exact doubles within bounds, and its texts
    are Unicode."""
    match value:
        case bool() | None:
            return True
        case int():
            return abs(value) < LARGEST and int(float(value)) == value
        case float():
            short = float(f"{value:.{DIGITS}g}") == value
            return value == 0 or (1e-15 < abs(value) < WIDEST and short)
        case str():
            return value.isprintable() or not any("\ud800" <= c <= "\udfff" for c in value)
        case list():
            return all(map(_is_writable, value))
        case dict():
            return all(map(_is_writable, (*value, *value.values())))
    return False


def _whole(value: Any) -> Any:
    """The value with integers for whole floats: a guide writes 1 for 1.0, and checks compare it."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_whole(inner) for inner in value]
        case dict():
            return {name: _whole(inner) for name, inner in value.items()}
    return value
