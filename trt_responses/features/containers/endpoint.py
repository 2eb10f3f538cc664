"""`/v1/containers`: where code runs, for its owner to make, see and end. Knows tools' seam."""

from __future__ import annotations

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response  # likewise

from trt_responses.errors import InvalidRequest
from trt_responses.features.containers.bodies import ContainerRequest, container_body
from trt_responses.features.containers.files import ContainerFileRoutes
from trt_responses.features.listing.listing import Order, Page, page_of
from trt_responses.features.listing.query import Limit  # likewise
from trt_responses.features.tool_items.containers import check_container_options
from trt_responses.tools.containers import ContainerStore, containers_of
from trt_responses.web.body import parsed, read_json
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.web.shared import Cold, Shared


def routes(shared: Shared) -> list[Cold]:
    """The endpoints of this folder; none where no tool has containers."""
    held = containers_of(shared.parts.tools.values())
    if held is None:
        return []
    return [ContainerRoutes(held, shared), ContainerFileRoutes(held, shared)]


class ContainerRoutes:
    """The endpoints of one tool's containers."""

    def __init__(self, containers: ContainerStore, shared: Shared) -> None:
        self._containers = containers
        self._headers = shared.headers
        self._limits = shared.limits

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, prefix="/v1/containers")
        router.post("", summary="Make a container", responses=replies(400, 401, 403, 429))(
            self.create
        )
        router.get("", summary="List one's containers", responses=replies(400, 401, 403))(self.list)
        router.get("/{container_id}", summary="One container", responses=replies(401, 403, 404))(
            self.retrieve
        )
        router.delete(
            "/{container_id}", summary="End a container", responses=replies(401, 403, 404)
        )(self.delete)
        return router

    async def create(self, request: Request, owner: Owner) -> Response:
        body = await read_json(request, self._limits)
        wanted = await parsed(body, ContainerRequest, self._limits)
        check_container_options(wanted, "")
        idle_s = None if wanted.expires_after is None else 60.0 * wanted.expires_after.minutes
        await self._containers.files.check(owner, wanted.file_ids or (), "file_ids")
        made = await self._containers.create(owner, wanted.name, idle_s)
        try:
            await self._containers.files.copy_all(owner, made.id, wanted.file_ids or ())
        except InvalidRequest as error:  # such as more than a container takes
            await self._containers.delete(owner, made.id)
            error.param = "file_ids"
            raise
        return json_reply(orjson.dumps(container_body(made)), self._headers(request))

    async def list(
        self,
        request: Request,
        owner: Owner,
        limit: Limit = 20,
        after: str | None = None,
        order: Order = "desc",
    ) -> Response:
        found = [container_body(facts) for facts in self._containers.facts_of(owner)]
        page = page_of(found, Page(order, limit, after))
        return json_reply(orjson.dumps(page), self._headers(request))

    async def retrieve(self, request: Request, container_id: str, owner: Owner) -> Response:
        facts = self._containers.facts(owner, container_id)
        return json_reply(orjson.dumps(container_body(facts)), self._headers(request))

    async def delete(self, request: Request, container_id: str, owner: Owner) -> Response:
        await self._containers.delete(owner, container_id)
        gone = {"id": container_id, "object": "container.deleted", "deleted": True}
        return json_reply(orjson.dumps(gone), self._headers(request))
