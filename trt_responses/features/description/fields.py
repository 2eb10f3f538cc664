"""The table of fields: served at `/v1/fields`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response  # likewise

from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.web.headers import ReplyHeaders
from trt_responses.wire.fields import Field

Tables = Mapping[str, Iterable[Field]]
"""The fields of each endpoint."""


class Fields:
    """`GET /v1/fields`."""

    def __init__(
        self, headers: ReplyHeaders, tables: Tables, ignored: Callable[[], frozenset[str]]
    ) -> None:
        """`ignored` names what the running engine takes and does nothing with."""
        self._headers = headers
        self._tables = tables
        self._ignored = ignored

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute)
        text = "What is done with each field"
        router.get("/v1/fields", summary=text, responses=replies(401, 403))(self.list)
        return router

    async def list(self, request: Request, owner: Owner) -> Response:
        ignored = self._ignored()
        rows = [
            {
                "endpoint": endpoint,
                "field": f.path,
                "treatment": f.treatment,
                "note": f.note or None,
                "ours": f.ours,
                "ignored_by_engine": f.path in ignored,
            }
            for endpoint, fields in self._tables.items()
            for f in fields
        ]
        body = orjson.dumps({"object": "list", "data": rows})
        return json_reply(body, self._headers(request))
