"""Health checks: whether the process is alive, and whether it takes work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002  # FastAPI reads the annotations
from starlette.responses import Response  # noqa: TC002  # likewise

from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import Anybody, ColdRoute, replies

if TYPE_CHECKING:
    from trt_responses.engine.base import Engine
    from trt_responses.response.runs import Runs
    from trt_responses.web.headers import ReplyHeaders


class HealthChecks:
    """Two answers for an orchestrator: restart when not alive, send no work when not ready."""

    def __init__(self, engine: Engine, runs: Runs, headers: ReplyHeaders) -> None:
        self._engine = engine
        self._runs = runs
        self._headers = headers

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, dependencies=[Anybody], responses=replies(503))
        router.get("/health/live", summary="Is the process alive")(self.live)
        router.get("/health/ready", summary="Does it take work")(self.ready)
        return router

    async def live(self, request: Request) -> Response:
        return self._reply(request, good=self._engine.health().alive)

    async def ready(self, request: Request) -> Response:
        return self._reply(request, good=self._engine.health().ready and not self._runs.draining)

    def _reply(self, request: Request, *, good: bool) -> Response:
        reason = "draining" if self._runs.draining else self._engine.health().reason
        body = {"status": "ok"} if good else {"status": "unavailable", "reason": reason}
        return json_reply(orjson.dumps(body), self._headers(request), 200 if good else 503)
