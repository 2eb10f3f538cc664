"""Is the process alive, and does it take work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from trt_responses.web.endpoint import json_reply

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from trt_responses.engine.base import Engine
    from trt_responses.response.runs import Runs
    from trt_responses.web.headers import ReplyHeaders


class HealthChecks:
    """For an orchestrator: restart when not alive, send no work when not ready."""

    def __init__(self, engine: Engine, runs: Runs, headers: ReplyHeaders) -> None:
        self._engine = engine
        self._runs = runs
        self._headers = headers

    async def live(self, request: Request, owner: str) -> ASGIApp:
        return self._reply(request, good=self._engine.health().alive)

    async def ready(self, request: Request, owner: str) -> ASGIApp:
        return self._reply(request, good=self._engine.health().ready and not self._runs.draining)

    def _reply(self, request: Request, *, good: bool) -> ASGIApp:
        reason = "draining" if self._runs.draining else self._engine.health().reason
        body = {"status": "ok"} if good else {"status": "unavailable", "reason": reason}
        return json_reply(orjson.dumps(body), self._headers(request), 200 if good else 503)
