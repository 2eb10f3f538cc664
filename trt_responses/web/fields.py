"""The table of fields, told: to machines at `/v1/fields`, to people in docs/api.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from trt_responses.web.endpoint import json_reply
from trt_responses.wire.fields import FIELDS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from trt_responses.web.headers import ReplyHeaders


class Fields:
    """`GET /v1/fields`."""

    def __init__(self, headers: ReplyHeaders) -> None:
        rows = [
            {"field": f.path, "treatment": f.treatment, "note": f.note or None, "ours": f.ours}
            for f in FIELDS
        ]
        self._body = orjson.dumps({"object": "list", "data": rows})
        self._headers = headers

    async def list(self, request: Request, owner: str) -> ASGIApp:
        return json_reply(self._body, self._headers(request))


def markdown() -> str:
    """The table as a document has it."""
    rows = "".join(
        f"| `{f.path}` | {f.treatment} | {f.note}{' (ours)' if f.ours else ''} |\n" for f in FIELDS
    )
    return f"| field | | |\n|---|---|---|\n{rows}"
