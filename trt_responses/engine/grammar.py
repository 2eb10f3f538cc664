"""A guide as llguidance reads it: Lark with one rule. The engines that use llguidance share it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from trt_responses.errors import InvalidRequest

if TYPE_CHECKING:
    from trt_responses.engine.base import Guide


def grammar(guide: Guide) -> str:
    if guide.kind == "regex":
        return f"%llguidance {{}}\nstart: /{_between_slashes(guide.source)}/"
    try:
        schema = orjson.loads(guide.source)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The guide's JSON schema is not JSON: {error}.") from None
    # Free whitespace is a place where a model can stay for ever.
    strict = {"x-guidance": {"whitespace_flexible": False}}
    schema = {**schema, **strict} if isinstance(schema, dict) else strict
    return f"%llguidance {{}}\nstart: %json {orjson.dumps(schema).decode()}"


def _between_slashes(pattern: str) -> str:
    escaped = re.sub(r"(\\.)|/", lambda found: found[1] or r"\/", pattern, flags=re.DOTALL)
    return escaped.replace("\n", r"\n")
