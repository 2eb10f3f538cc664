"""The table of fields: for machines at `/v1/fields`, for people in docs/api.md."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002  # FastAPI reads the annotations
from starlette.responses import Response  # noqa: TC002  # likewise

from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.wire.fields import CHAT, FIELDS, MESSAGES, SOCKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.web.headers import ReplyHeaders

ENDPOINTS = {
    "/v1/responses": FIELDS,
    "/v1/responses over WebSocket": SOCKET,
    "/v1/chat/completions": CHAT,
    "/v1/messages": MESSAGES,
}


class Fields:
    """`GET /v1/fields`."""

    def __init__(self, headers: ReplyHeaders, ignored: Callable[[], frozenset[str]]) -> None:
        """`ignored` names what the running engine takes and does nothing with."""
        self._headers = headers
        self._ignored = ignored

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute)
        text = "What is done with each field"
        router.get("/v1/fields", summary=text, responses=replies(401, 403))(self.list)
        return router

    async def list(self, request: Request, owner: Owner) -> Response:
        return json_reply(_body(self._ignored()), self._headers(request))


@lru_cache(maxsize=4)
def _body(ignored: frozenset[str]) -> bytes:
    rows = [
        {
            "endpoint": endpoint,
            "field": f.path,
            "treatment": f.treatment,
            "note": f.note or None,
            "ours": f.ours,
            "ignored_by_engine": f.path in ignored,
        }
        for endpoint, fields in ENDPOINTS.items()
        for f in fields
    ]
    return orjson.dumps({"object": "list", "data": rows})


def markdown(endpoint: str = "/v1/responses") -> str:
    """The table of one endpoint as a document has it."""
    rows = "".join(
        f"| `{f.path}` | {f.treatment} | {f.note}{' (ours)' if f.ours else ''} |\n"
        for f in ENDPOINTS[endpoint]
    )
    return f"| field | | |\n|---|---|---|\n{rows}"
