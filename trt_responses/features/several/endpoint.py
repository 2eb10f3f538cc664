"""`/admin/replicas`: the engines of each model, and the drain of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response  # likewise

from trt_responses.errors import NotFound
from trt_responses.features.limits.audit import Audit
from trt_responses.features.limits.endpoint import note
from trt_responses.features.several.engine import SeveralEngines
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import Admin, ColdRoute, replies

if TYPE_CHECKING:
    from trt_responses.web.shared import Shared


def routes(shared: Shared) -> list[ReplicaActs]:
    """The endpoints of this folder."""
    return [ReplicaActs(shared)]


class ReplicaActs:
    """Each act is noted in the audit file first; one that cannot be noted is not done."""

    def __init__(self, shared: Shared) -> None:
        self._engines = shared.of(SeveralEngines)
        self._audit = shared.of(Audit)
        self._headers = shared.headers

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, prefix="/admin/replicas")
        refused = replies(401, 403, 404, 500)
        router.get("", summary="The engines of each model", responses=refused)(self.list)
        router.post(
            "/{model}/{number}/drain", summary="Send an engine no new requests", responses=refused
        )(self.drain)
        router.post(
            "/{model}/{number}/resume", summary="Send a drained engine requests", responses=refused
        )(self.resume)
        return router

    async def list(self, request: Request, admin: Admin) -> Response:
        body = {"data": self._engines.state()}
        return json_reply(orjson.dumps(body), self._headers(request))

    async def drain(self, request: Request, model: str, number: str, admin: Admin) -> Response:
        """What it generates goes on to its end; runs that call tools continue at another one."""
        return await self._set(request, f"{model}/{number}", admin, draining=True)

    async def resume(self, request: Request, model: str, number: str, admin: Admin) -> Response:
        return await self._set(request, f"{model}/{number}", admin, draining=False)

    async def _set(self, request: Request, label: str, admin: str, *, draining: bool) -> Response:
        replica = next((each for each in self._engines.replicas() if each.label == label), None)
        if replica is None:
            known = ", ".join(each.label for each in self._engines.replicas())
            raise NotFound(f"No engine {label!r:.100}: this server has {known}.")
        act = "replica.drain" if draining else "replica.resume"
        await note(self._audit, act, admin, engine=label)
        replica.row.draining = draining
        return json_reply(orjson.dumps(replica.state()), self._headers(request))
