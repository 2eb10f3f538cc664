"""Health: what an orchestrator, a router and a person ask, answered by one function.

No route asks for a key or looks at Host: probes come with the pod's address and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response  # likewise

from trt_responses.features.health.health import Health, Report
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import Anybody, ColdRoute, replies
from trt_responses.web.headers import ReplyHeaders


class HealthChecks:
    """Restart it when it is not live, send it no work when it is not ready."""

    def __init__(
        self, health: Health, headers: ReplyHeaders, *, about: Callable[[], Mapping[str, Any]]
    ) -> None:
        """`about` is what is served: the model, the versions, the engine's kind."""
        self._health = health
        self._headers = headers
        self._about = about

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, dependencies=[Anybody], responses=replies(503))
        router.get("/health", summary="How the server is, in full")(self.whole)
        for prefix in ("/health", "/v1/health"):
            router.get(f"{prefix}/live", summary="Is the process alive")(self.live)
            router.get(f"{prefix}/ready", summary="Does it take work")(self.ready)
        return router

    async def whole(self, request: Request) -> Response:
        report = self._health()
        return self._reply(request, _whole(report, self._about()), good=report.ready)

    async def live(self, request: Request) -> Response:
        report = self._health()
        return self._reply(request, _short(report, good=report.live), good=report.live)

    async def ready(self, request: Request) -> Response:
        report = self._health()
        return self._reply(request, _short(report, good=report.ready), good=report.ready)

    def _reply(self, request: Request, body: dict[str, Any], *, good: bool) -> Response:
        return json_reply(orjson.dumps(body), self._headers(request), 200 if good else 503)


def _short(report: Report, *, good: bool) -> dict[str, Any]:
    if good:
        return {"status": "ok"}
    return {"status": "unavailable", "state": report.state, "reason": report.reason}


def _whole(report: Report, about: Mapping[str, Any]) -> dict[str, Any]:
    engine = {
        **about["engine"],
        "alive": report.engine_alive,
        "ready": report.engine_ready,
        "last_progress_s": round(report.last_progress_s, 3),
    }
    return {
        "status": "ok" if report.ready else "unavailable",
        "state": report.state,
        "reason": report.reason,
        "since_s": round(report.since_s, 3),
        "live": report.live,
        "ready": report.ready,
        **about,
        "engine": engine,
        "queue": {"running": report.running, "waiting": report.waiting},
    }
