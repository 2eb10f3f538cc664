"""`/admin/engines/{name}`: which versions of an engine are loaded, and how that is changed."""

from __future__ import annotations

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response  # likewise

from trt_responses.errors import error_body
from trt_responses.features.limits.audit import Audit
from trt_responses.features.limits.endpoint import note
from trt_responses.features.rollout.acts import acts_of
from trt_responses.features.rollout.bodies import load_request
from trt_responses.features.rollout.measures import LoadRefused
from trt_responses.web.body import read_body
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import Admin, ColdRoute, replies
from trt_responses.web.shared import Shared


def routes(shared: Shared) -> list[EngineActs]:
    """The endpoints of this folder."""
    return [EngineActs(shared)]


class EngineActs:
    """Each act is noted in the audit file first; one that cannot be noted is not done."""

    def __init__(self, shared: Shared) -> None:
        self._acts = acts_of(shared)
        self._audit = shared.of(Audit)
        self._headers = shared.headers
        self._limits = shared.limits

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, prefix="/admin/engines")
        refused = replies(400, 401, 403, 404, 409, 500)
        router.get("/{name}", summary="Which versions are loaded", responses=refused)(self.show)
        router.post(
            "/{name}/load", summary="Load a version, compare it, serve it", responses=refused
        )(self.load)
        router.post("/{name}/unload", summary="End a canary", responses=refused)(self.unload)
        return router

    async def show(self, request: Request, name: str, admin: Admin) -> Response:
        return self._reply(request, await self._acts.state(name))

    async def load(self, request: Request, name: str, admin: Admin) -> Response:
        """The reply comes when it is served or refused; a load continues without its client."""
        wanted = load_request(await read_body(request, self._limits))
        await note(self._audit, "engine.load", admin, engine=name, version=wanted.version)
        try:
            outcome = await self._acts.load(name, wanted)
        except LoadRefused as refused:
            report = refused.report.to_dict() if refused.report is not None else None
            body = {"error": error_body(refused), "gate": report}
            return json_reply(orjson.dumps(body), self._headers(request), refused.status)
        return self._reply(request, outcome)

    async def unload(self, request: Request, name: str, admin: Admin) -> Response:
        await note(self._audit, "engine.unload", admin, engine=name)
        label = await self._acts.unload(name)
        return self._reply(request, {"state": "unloaded", "version": label})

    def _reply(self, request: Request, body: object) -> Response:
        return json_reply(orjson.dumps(body), self._headers(request))
