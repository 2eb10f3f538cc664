"""Closes the objects of a schema: they allow the listed members and no others.

An MCP server often lists a call's arguments and does not forbid others, so JSON Schema allows any.
The prompt shows the model the listed ones alone, and the server would refuse or ignore any others.
No guide and no request here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trt_responses.schema.documents import parts, rebuilt

OF_OTHERS = ("additionalProperties", "patternProperties", "propertyNames")
TOGETHER = ("anyOf", "oneOf", "$ref")
"""Keywords that describe the same object as `properties` beside them."""
COMBINED = ("allOf", "if", "not", "dependentSchemas", "dependencies", "unevaluatedProperties")


def closed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema with each object closed that lists its members and does not mention others.
    Unchanged if several parts may describe one object: each would forbid the others' members."""
    result: Mapping[str, Any] = schema if _combines(schema) else _closed(schema)
    return result


def _combines(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    if any(keyword in schema for keyword in COMBINED):
        return True
    if "properties" in schema and any(keyword in schema for keyword in TOGETHER):
        return True
    return any(_combines(part) for _, part in parts(schema))


def _closed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    result = rebuilt(schema, _closed)
    if _lists_all(schema):
        result["additionalProperties"] = False
    return result


def _lists_all(schema: Mapping[str, Any]) -> bool:
    """Whether an object lists its members, all required ones included, and mentions no others."""
    listed, needed = schema.get("properties"), schema.get("required")
    if not isinstance(listed, dict) or any(keyword in schema for keyword in OF_OTHERS):
        return False
    return set(needed if isinstance(needed, list) else ()) <= listed.keys()
