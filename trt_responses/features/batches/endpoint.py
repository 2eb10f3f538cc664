"""`/v1/batches`: batches, for their owner to begin, list, read and cancel."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response  # likewise

from trt_responses.features.batches.batches import Batches, BatchRequest, Body
from trt_responses.features.listing.listing import Page, page_of
from trt_responses.features.listing.query import Limit  # likewise
from trt_responses.web.body import parsed, read_json
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.web.headers import ignored_header
from trt_responses.web.shared import Shared


class BatchRoutes:
    """The endpoints of batches."""

    def __init__(self, shared: Shared, batches: Batches) -> None:
        self._batches = batches
        self._headers = shared.headers
        self._limits = shared.limits

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, prefix="/v1/batches")
        refused = replies(400, 401, 403, 404, 503)
        begun = replies(400, 401, 403, 404, 429, 503)
        router.post("", summary="Begin a batch", responses=begun)(self.create)
        router.get("", summary="List one's batches", responses=refused)(self.list)
        router.get("/{batch_id}", summary="One batch", responses=refused)(self.retrieve)
        router.post("/{batch_id}/cancel", summary="Cancel a batch", responses=refused)(self.cancel)
        return router

    async def create(self, request: Request, owner: Owner) -> Response:
        wanted = await parsed(await read_json(request, self._limits), BatchRequest, self._limits)
        made = await self._batches.create(owner, wanted)
        return self._reply(request, made, ignored_header(sorted(wanted.model_extra or ()), request))

    async def list(
        self, request: Request, owner: Owner, limit: Limit = 20, after: str | None = None
    ) -> Response:
        found = await self._batches.of(owner)
        return self._reply(request, page_of(found, Page("desc", limit, after)))

    async def retrieve(self, request: Request, batch_id: str, owner: Owner) -> Response:
        return self._reply(request, await self._batches.get(batch_id, owner))

    async def cancel(self, request: Request, batch_id: str, owner: Owner) -> Response:
        return self._reply(request, await self._batches.cancel(batch_id, owner))

    def _reply(
        self, request: Request, body: Body, headers: Mapping[str, str] | None = None
    ) -> Response:
        return json_reply(orjson.dumps(body), {**self._headers(request), **(headers or {})})
