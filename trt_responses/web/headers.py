"""What requests say in headers, and what replies tell in headers of our own. Knows no route."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from trt_responses.errors import InvalidRequest
from trt_responses.wire.dialect import DIALECTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from trt_responses.wire.dialect import Dialect

DIALECT_HEADER = b"x-trt-dialect"

NAMED, NAMED_CHARS = 32, 64
"""Of names in a header: how many are told, and how much of each."""


def header(request: Request, name: bytes) -> str | None:
    """The first of this name: as the framework's own, which takes a microsecond for each."""
    for key, value in request.scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def ignored_header(names: Sequence[str]) -> dict[str, str]:
    return {"x-trt-ignored": named(names)} if names else {}


def truncated_header(ids: Sequence[str]) -> dict[str, str]:
    return {"x-trt-truncated": named(ids)} if ids else {}


def named(names: Sequence[str]) -> str:
    """Names in a header. A client chose them: what no header may hold is escaped."""
    told = [quote(name[:NAMED_CHARS], safe="[]") for name in names[:NAMED]]
    if len(names) > NAMED:
        told.append(f"and {len(names) - NAMED} more")
    return ", ".join(told)


def dialect_of(request: Request, usual: Dialect) -> Dialect:
    """How this request's events are spelled."""
    asked = header(request, DIALECT_HEADER)
    if asked is None:
        return usual
    if (dialect := DIALECTS.get(asked.strip().lower())) is None:
        raise InvalidRequest(
            f"Invalid value for the header '{DIALECT_HEADER.decode()}': expected one of "
            f"{', '.join(map(repr, DIALECTS))}, got {asked!r:.100}.",
            param=DIALECT_HEADER.decode(),
            code="invalid_value",
        )
    return dialect
