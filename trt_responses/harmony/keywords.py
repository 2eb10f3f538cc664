"""The values of single keywords: read, or refused with their place. Walks nothing."""

from __future__ import annotations

import re
import time
from decimal import Decimal
from typing import TYPE_CHECKING

import orjson

from trt_responses.errors import InvalidRequest
from trt_responses.harmony import jsonvalue as j
from trt_responses.harmony.formats import FORMATS
from trt_responses.harmony.pattern import Pattern, UnsafePattern
from trt_responses.harmony.whitelist import (
    MAX_DEPTH,
    MAX_ENUM_BYTES,
    MAX_ENUM_VALUES,
    MAX_PATTERN_LENGTH,
    MAX_REPEATS,
    TYPES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trt_responses.harmony.jsontext import Node

BOUND_NAMES = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


CONTROL_SPELLING = re.compile(r"<\|\w+\|>")


def fault(place: str, what: str, keyword: str | None = None) -> InvalidRequest:
    param = place if keyword is None else f"{place}.{keyword}"
    return InvalidRequest(
        f"Invalid schema: '{param}' {what}.", param=param, code="invalid_json_schema"
    )


class SlowSchema(InvalidRequest):
    """The schemas of one request have had their time."""


class Allowance:
    """The time that the schemas of one request have, together, on a clock of the thread's own."""

    def __init__(
        self, limit_s: float = float("inf"), clock_s: Callable[[], float] = time.thread_time
    ) -> None:
        self._limit_s = limit_s
        self._clock_s = clock_s
        self._end_s = clock_s() + limit_s

    def check(self, place: str) -> None:
        if self._clock_s() > self._end_s:
            raise SlowSchema(
                f"Invalid schema: '{place}' is not compiled within {self._limit_s:g} s, which is "
                "all that the schemas of a request have (TRT_RESPONSES_SCHEMA_S).",
                param=place,
                code="invalid_json_schema",
            )


def check_spelling(forced: str, place: str, keyword: str | None = None) -> None:
    """llama.cpp takes forced text that spells a control token for the token itself."""
    if CONTROL_SPELLING.search(forced):
        raise fault(place, "spells a control token, which no text may be made to hold", keyword)


def as_schema(value: object, place: str) -> Mapping[str, object]:
    if value is True:
        return {}
    if not isinstance(value, dict):
        raise fault(place, "must be a schema: an object")
    return value


def types_of(told: dict[str, object], place: str) -> list[str]:
    value = told.get("type")
    types = [str(kind) for kind in (value if isinstance(value, list) else [value])]
    if not types or not all(kind in TYPES for kind in types):
        raise fault(place, f"must be one or more of {', '.join(TYPES)}", "type")
    return types


def constants(told: dict[str, object], place: str) -> tuple[Node, dict[str, object]]:
    keyword = "enum" if "enum" in told else "const"
    for other in told:
        if other not in (keyword, "type"):
            raise fault(place, f"is not supported beside '{keyword}'", other)
    values = told["enum"] if keyword == "enum" else [told["const"]]
    if not isinstance(values, list) or not 0 < len(values) <= MAX_ENUM_VALUES:
        raise fault(place, f"must be a list of 1 to {MAX_ENUM_VALUES} values", keyword)
    if "type" in told:
        kinds = types_of(told, place)
        values = [value for value in values if any(_is(value, kind) for kind in kinds)]
        if not values:
            raise fault(place, f"holds nothing of type {'/'.join(kinds)}", keyword)
    if len(told_as := orjson.dumps(values)) > MAX_ENUM_BYTES:
        raise fault(place, f"has more than {MAX_ENUM_BYTES} bytes", keyword)
    check_spelling(told_as.decode(), place, keyword)
    if _depth(values) > MAX_DEPTH:
        raise fault(place, f"is nested deeper than {MAX_DEPTH}", keyword)
    return j.constants(values), {"enum": values}


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level := [
        inner
        for item in level
        if isinstance(item, dict | list)
        for inner in (item.values() if isinstance(item, dict) else item)
    ]:
        depth += 1
    return depth


def _is(value: object, kind: str) -> bool:
    match kind:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "null":
            return value is None
    return isinstance(value, {"object": dict, "array": list, "string": str, "boolean": bool}[kind])


def repeats(
    told: dict[str, object], place: str, least: str, most: str, written: dict[str, object]
) -> tuple[int, int | None]:
    found: dict[str, int | None] = {}
    for keyword in (least, most):
        value = told.get(keyword)
        if value is not None and (type(value) is not int or not 0 <= value <= MAX_REPEATS):
            raise fault(place, f"must be a whole number from 0 to {MAX_REPEATS}", keyword)
        found[keyword] = value if isinstance(value, int) else None
        if value is not None:
            written[keyword] = value
    low, high = found[least] or 0, found[most]
    if high is not None and low > high:
        raise fault(place, f"is greater than '{most}'", least)
    return low, high


def bound(
    told: dict[str, object], keyword: str, place: str, written: dict[str, object]
) -> Decimal | None:
    value = told.get(keyword)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e15:
        raise fault(place, "must be a number within 10^15", keyword)
    written[keyword] = value
    return Decimal(repr(value))


def room(node: j.Number, low: Decimal, high: Decimal) -> bool:
    """Whether there is a number between, of a kind that the node takes."""
    if node.integer:
        whole = low.to_integral_value(rounding="ROUND_CEILING")
        return any(node.takes(value) for value in (whole, whole + 1))
    return node.takes(low) or node.takes((low + high) / 2)


def form_of_text(value: object, place: str) -> Callable[[str], bool]:
    if not isinstance(value, str) or value not in FORMATS:
        raise fault(place, f"must be one of {', '.join(FORMATS)}", "format")
    return FORMATS[value]


def pattern_of(value: object, place: str) -> Pattern:
    if not isinstance(value, str) or len(value) > MAX_PATTERN_LENGTH:
        raise fault(place, f"must be at most {MAX_PATTERN_LENGTH} characters", "pattern")
    try:
        return Pattern(value)
    except UnsafePattern as error:
        raise fault(place, f"is no pattern that can be followed: {error}", "pattern") from None
