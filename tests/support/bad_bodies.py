"""Bodies that are refused, each with the status, the field and the code of the error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.asgi import asked

if TYPE_CHECKING:
    from collections.abc import Callable

INVALID, MISSING, UNSUPPORTED = (
    "invalid_value",
    "missing_required_parameter",
    "unsupported_parameter",
)


def body(**fields: Any) -> bytes:
    return json.dumps(asked(**fields)).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in asked().items() if key != name}).encode()


def raw(field: bytes) -> bytes:
    return b'{"model": "demo", "input": "hi", ' + field + b"}"


def nested(schema: str, end: str, times: int) -> bytes:
    return raw(
        b'"tools": [{"type": "function", "name": "f", "parameters": '
        + (schema * times + "{}" + end * times).encode()
        + b"}]"
    )


Row = tuple[bytes, int, str | None, str | None]


def bad(param: str, code: str = INVALID, /, **fields: Any) -> Row:
    return body(**fields), 400, param, code


def gone(previous_response_id: str) -> Row:
    sent = body(previous_response_id=previous_response_id)
    return sent, 404, "previous_response_id", "previous_response_not_found"


def wrong(param: str, *values: object, code: str = INVALID) -> list[Row]:
    """A row for each value of a field, which may stand inside another."""
    name, _, inner = param.partition(".")
    return [bad(param, code, **{name: {inner: v} if inner else v}) for v in values]


def each(kind: Callable[..., Row], place: str, *values: object) -> list[Row]:
    return [kind(place, value) for value in values]


def item(place: str, *items: Any, code: str = INVALID) -> Row:
    return body(input=items), 400, f"input{place}", code


def tool(place: str, *tools: Any, code: str = INVALID) -> Row:
    return body(tools=tools), 400, f"tools{place}", code
