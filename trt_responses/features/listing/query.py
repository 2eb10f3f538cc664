"""The queries of lists."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import BeforeValidator, Field
from starlette.requests import Request

from trt_responses.web.headers import ignored_header

IGNORED = ("include", "include[]", "include_obfuscation")
MAX_LIMIT = 100


def whole_number(value: object, least: int, most: int) -> int:
    """A number as a query writes it. What is no text is a default, and stays."""
    if isinstance(value, int):
        return value
    text = str(value)
    if text.isascii() and text.isdecimal() and len(text) <= 16 and least <= int(text) <= most:
        return int(text)
    raise ValueError(f"it must be an integer from {least} to {most}")


Limit = Annotated[
    int,
    Field(ge=1, le=MAX_LIMIT),
    BeforeValidator(partial(whole_number, least=1, most=MAX_LIMIT)),
]


def ignored_query(request: Request, *honoured: str) -> dict[str, str]:
    """The header that names query parameters which mean nothing here, but for these values."""
    query = request.query_params
    ignored = [name for name in IGNORED if not set(query.getlist(name)) <= {*honoured}]
    return ignored_header(ignored)
