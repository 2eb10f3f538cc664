"""Converts an MCP server's descriptions, schemas and results for the model, with limits.

All of it is untrusted data: none of it may become structure of a prompt.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, NamedTuple

MAX_DESCRIPTION = 4096
MAX_SCHEMA = 32 * 1024
MAX_DEPTH = 32
BREAKS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x85\u2028\u2029]+")
"""Line separators of any parser, except LF, which the prompt's comments handle."""
ANY_OBJECT = {"type": "object"}
WHOLE = range(-(2**63), 2**64)
"""Whole numbers that are written as they are."""


class Listed(NamedTuple):
    """A tool as its server lists it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any] | None
    plain: bool = False
    """Whether the schema is as the model may be shown it."""


class Result(NamedTuple):
    """The result of a call."""

    content: list[dict[str, Any]]
    structured: Any
    is_error: bool


def description_of(tool: Listed, server_description: str | None) -> str:
    """The tool's description, after the client's description of the server."""
    text = BREAKS.sub(" ", tool.description)
    if len(text) > MAX_DESCRIPTION:
        text = text[:MAX_DESCRIPTION] + " […]"
    return "\n".join(filter(None, (server_description, text)))


def schema_of(tool: Listed) -> dict[str, Any]:
    """The schema of its arguments; any object if that is too large, too deep, or not an object."""
    schema = tool.input_schema
    if tool.plain:
        return schema
    if schema.get("type") != "object" or not _is_plain(schema, MAX_DEPTH):
        return ANY_OBJECT
    if len(json.dumps(schema)) > MAX_SCHEMA:
        return ANY_OBJECT
    plain: dict[str, Any] = _with_plain_comments(schema)
    return plain


def _is_plain(node: Any, depth: int) -> bool:
    """Whether no name and no text in it contains a line break, nothing is nested too deep, and
    JSON's writers have every number."""
    if depth == 0:
        return False
    if isinstance(node, dict):
        names = all(not BREAKS.search(key) and "\n" not in key for key in node)
        return names and all(
            _is_comment(key, value) or _is_plain(value, depth - 1) for key, value in node.items()
        )
    if isinstance(node, list):
        return all(_is_plain(one, depth - 1) for one in node)
    if isinstance(node, int):
        return node in WHOLE
    if isinstance(node, float):
        return isfinite(node)
    return not isinstance(node, str) or ("\n" not in node and not BREAKS.search(node))


def _is_comment(key: str, value: Any) -> bool:
    """Whether it is a description, not a property with that name."""
    return key == "description" and isinstance(value, str)


def _with_plain_comments(node: Any) -> Any:
    """The schema with each description on one line: the prompt comments out only the first."""
    if isinstance(node, dict):
        return {
            key: _one_line(value) if _is_comment(key, value) else _with_plain_comments(value)
            for key, value in node.items()
        }
    return [_with_plain_comments(one) for one in node] if isinstance(node, list) else node


def texts_of(result: Result) -> list[str]:
    """A result's parts as text; other parts are named."""
    texts = [_part(part) for part in result.content]
    if result.structured is not None and not any(p.get("type") == "text" for p in result.content):
        texts.append(json.dumps(result.structured, ensure_ascii=False))
    return texts or ["(The tool returned nothing.)"]


def _part(part: dict[str, Any]) -> str:
    match part.get("type"):
        case "text":
            return str(part.get("text", ""))
        case "image" | "audio" as kind:
            return f"[{kind} {_line(part.get('mimeType'))}, {_size(part.get('data'))}: left out]"
        case "resource_link":
            return f"[resource {_line(part.get('name'))}: {_line(part.get('uri'))}]"
        case "resource":
            resource = part.get("resource") or {}
            if isinstance(resource.get("text"), str):
                return f"[resource {_line(resource.get('uri'))}]\n{resource['text']}"
            what = f"{_line(resource.get('mimeType'))}, {_size(resource.get('blob'))}"
            return f"[resource {_line(resource.get('uri'))}: {what}: left out]"
        case kind:
            return f"[{_line(kind)}: left out]"


def _line(value: object) -> str:
    return _one_line(str(value or "unnamed"))[:200]


def _one_line(text: str) -> str:
    return BREAKS.sub(" ", text.replace("\n", " "))


def _size(data: object) -> str:
    return f"{len(data) * 3 // 4 if isinstance(data, str) else 0} bytes"
