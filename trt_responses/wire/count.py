"""The body of `POST /v1/responses/input_tokens`: a request, of which nothing must be there."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Tag

from trt_responses.wire.items import TEXT_OR_LIST, SentItem
from trt_responses.wire.request import Request


def _nothing(value: Any) -> Any:
    return "" if value is None else value


class CountRequest(Request):
    """Null and nothing mean the same, as everywhere."""

    model: Annotated[str, BeforeValidator(_nothing)] = ""
    input: Annotated[
        Annotated[
            Annotated[str, Tag("~text")] | Annotated[list[SentItem], Tag("~list")], TEXT_OR_LIST
        ],
        BeforeValidator(_nothing),
    ] = ""
