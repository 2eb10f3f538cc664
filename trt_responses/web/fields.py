"""The table of fields: for machines at `/v1/fields`, for people in docs/api.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002  # FastAPI reads the annotations
from starlette.responses import Response  # noqa: TC002  # likewise

from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.wire.fields import CHAT, FIELDS, MESSAGES, SOCKET

if TYPE_CHECKING:
    from trt_responses.web.headers import ReplyHeaders

ENDPOINTS = {
    "/v1/responses": FIELDS,
    "/v1/responses over WebSocket": SOCKET,
    "/v1/chat/completions": CHAT,
    "/v1/messages": MESSAGES,
}


class Fields:
    """`GET /v1/fields`."""

    def __init__(self, headers: ReplyHeaders) -> None:
        rows = [
            {
                "endpoint": endpoint,
                "field": f.path,
                "treatment": f.treatment,
                "note": f.note or None,
                "ours": f.ours,
            }
            for endpoint, fields in ENDPOINTS.items()
            for f in fields
        ]
        self._body = orjson.dumps({"object": "list", "data": rows})
        self._headers = headers

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute)
        text = "What is done with each field"
        router.get("/v1/fields", summary=text, responses=replies(401, 403))(self.list)
        return router

    async def list(self, request: Request, owner: Owner) -> Response:
        return json_reply(self._body, self._headers(request))


def markdown(endpoint: str = "/v1/responses") -> str:
    """The table of one endpoint as a document has it."""
    rows = "".join(
        f"| `{f.path}` | {f.treatment} | {f.note}{' (ours)' if f.ours else ''} |\n"
        for f in ENDPOINTS[endpoint]
    )
    return f"| field | | |\n|---|---|---|\n{rows}"
