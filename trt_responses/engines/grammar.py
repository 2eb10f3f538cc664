"""A guide as llguidance reads it: Lark. The engines that use llguidance share it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from trt_responses.errors import InvalidRequest

if TYPE_CHECKING:
    from trt_responses.engine import Guide

DEADLY = -(2.0**63)
"""A number that ends the whole process where llguidance meets it as a schema's constant."""


def grammar(guide: Guide) -> str:
    """The Lark grammar of a guide."""
    if guide.kind == "regex":
        return f"%llguidance {{}}\nstart: /{_between_slashes(guide.source)}/"
    if guide.kind == "lark":
        return f"%llguidance {{}}\n{guide.source}"
    try:
        schema = orjson.loads(guide.source)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The guide's JSON schema is not JSON: {error}.") from None
    if _holds(schema, DEADLY):
        raise InvalidRequest(
            f"The guide's JSON schema holds a number that no engine can take, {DEADLY:.0f}: leave "
            "it out, or give it as a string."
        )
    # Free whitespace is a place where a model can stay for ever.
    strict = {"x-guidance": {"whitespace_flexible": False}}
    schema = {**schema, **strict} if isinstance(schema, dict) else strict
    try:
        return f"%llguidance {{}}\nstart: %json {orjson.dumps(schema).decode()}"
    except TypeError:  # what it reads it does not always write
        raise InvalidRequest("The guide's JSON schema is nested too deep.") from None


def _holds(value: object, number: float) -> bool:
    """Whether a JSON value holds this number, as a double."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as members:
                waiting.extend(members.values())
            case list() as items:
                waiting.extend(items)
            case int() | float() as found if float(found) == number:
                return True
    return False


def _between_slashes(pattern: str) -> str:
    escaped = re.sub(r"(\\.)|/", lambda found: found[1] or r"\/", pattern, flags=re.DOTALL)
    return escaped.replace("\n", r"\n")
