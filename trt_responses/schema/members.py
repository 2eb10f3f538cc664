"""The members of an object: listed ones, and the schemas of other names."""

from __future__ import annotations

from typing import Any

from trt_responses.schema.documents import Document
from trt_responses.schema.formats import EXPRESSIONS
from trt_responses.schema.refusals import refused
from trt_responses.schema.values import CONTROL_SPELLING, SPELLS_CONTROL

Schema = dict[str, Any]
MAX_OF_NAME = 1_000
"""Maximum length of a name in a length bound."""


def members(schema: Schema, document: Document) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """The schemas by name, by name pattern, and for all other names. `propertyNames` is converted
    to these."""
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
    """Whether no other schema describes the same object."""
    return schema.keys().isdisjoint(("anyOf", "oneOf", "allOf", "$ref", "if"))


def required(schema: Schema, place: str) -> list[str]:
    """The required names of an object."""
    names = schema.get("required", [])
    return (
        [] if isinstance(names, bool) else [writable(name, place) for name in dict.fromkeys(names)]
    )


def writable(name: str, place: str) -> str:
    """The name. Raises `InvalidSchema` if it spells a control token, which llama.cpp would read
    from forced text, or contains DEL, which guides escape in texts but not in names."""
    if CONTROL_SPELLING.search(name) or "\x7f" in name:
        raise refused(f"{place}.properties.{name}", SPELLS_CONTROL)
    return name
