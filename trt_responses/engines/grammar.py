"""Converts guides to Lark grammars for llguidance."""

from __future__ import annotations

import re

import orjson

from trt_responses.engine import Guide
from trt_responses.errors import InvalidRequest

DEADLY = -(2.0**63)
"""A number that crashes llguidance, and the process, as a constant in a schema."""


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
            f"The guide's JSON schema contains an unsupported number, {DEADLY:.0f}: remove it, or "
            "write it as a string."
        )
    # With free white space a model can loop for ever.
    strict = {"x-guidance": {"whitespace_flexible": False}}
    schema = {**schema, **strict} if isinstance(schema, dict) else strict
    try:
        return f"%llguidance {{}}\nstart: %json {orjson.dumps(schema).decode()}"
    except TypeError:  # orjson reads deeper nesting than it writes
        raise InvalidRequest("The guide's JSON schema is nested too deep.") from None


def _holds(value: object, number: float) -> bool:
    """Whether a JSON value contains this number, as a double."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as members:
                waiting.extend(members.values())
            case list() as items:
                waiting.extend(items)
            case int() | float() as value if float(value) == number:
                return True
    return False


def _between_slashes(pattern: str) -> str:
    escaped = re.sub(r"(\\.)|/", lambda match: match[1] or r"\/", pattern, flags=re.DOTALL)
    return escaped.replace("\n", r"\n")
