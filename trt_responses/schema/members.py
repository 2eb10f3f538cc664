"""The members of an object: which a schema lists, and what it says of the names of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trt_responses.schema.formats import EXPRESSIONS
from trt_responses.schema.refusals import refused
from trt_responses.schema.values import CONTROL_SPELLING, SPELLS_CONTROL

if TYPE_CHECKING:
    from trt_responses.schema.documents import Document

Schema = dict[str, Any]
MAX_OF_NAME = 1_000
"""Characters of a name that a schema counts."""


def members(schema: Schema, document: Document) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Schemas by name, by pattern of a name, and that of all others: `propertyNames` is spoken in
    these words too."""
    listed, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    rest = schema.get("additionalProperties", True)
    if rest is True and schema.get("unevaluatedProperties") is False:
        rest = not is_alone(schema)
    names = schema.get("propertyNames")
    if isinstance(names, dict) and "$ref" in names:
        names = document.target(names["$ref"])
    if not isinstance(names, dict):
        return listed, patterns, rest
    values = names.get("enum", [names["const"]] if "const" in names else None)
    if isinstance(values, list):
        texts = [value for value in values if isinstance(value, str)]
        return {name: listed.get(name, rest) for name in texts}, patterns, False
    if patterns or (pattern := _pattern(names)) is None:
        return listed, patterns, rest
    return listed, {pattern: rest}, False


def _pattern(names: Schema) -> str | None:
    if isinstance(pattern := names.get("pattern"), str):
        return pattern
    if (source := EXPRESSIONS.get(str(names.get("format")))) is not None:
        return f"^(?:{source})$"
    least, most = names.get("minLength", 0), names.get("maxLength", "")
    if isinstance(least, int) and (least or most):
        longest = min(most, MAX_OF_NAME) if most else ""
        return f"^[\\s\\S]{{{min(least, MAX_OF_NAME)},{longest}}}$"
    return None


def is_alone(schema: Schema) -> bool:
    """Whether no other schema says anything of the same object."""
    return schema.keys().isdisjoint(("anyOf", "oneOf", "allOf", "$ref", "if"))


def required(schema: Schema, place: str) -> list[str]:
    """The names that an object must have."""
    names = schema.get("required", [])
    return (
        [] if isinstance(names, bool) else [writable(name, place) for name in dict.fromkeys(names)]
    )


def writable(name: str, place: str) -> str:
    """The name. llama.cpp takes forced text that spells a control token for the token itself; and
    guides write DEL in a name as it is, but in a text by its number."""
    if CONTROL_SPELLING.search(name) or "\x7f" in name:
        raise refused(f"{place}.properties.{name}", SPELLS_CONTROL)
    return name
