"""What only an admin may do over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response  # likewise

from trt_responses.errors import ApiError
from trt_responses.features.limits.audit import Audit
from trt_responses.health.lifecycle import Lifecycle
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import Admin, ColdRoute, replies

if TYPE_CHECKING:
    from trt_responses.web.shared import Shared


class AdminActs:
    """Each act is noted in the audit file first; one that cannot be noted is not done."""

    def __init__(self, shared: Shared) -> None:
        self._lifecycle = shared.of(Lifecycle)
        self._audit = shared.of(Audit)
        self._headers = shared.headers
        self._linger_s = shared.settings.linger_s

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute)
        router.post(
            "/admin/drain",
            summary="Stop the server as a SIGTERM does",
            responses=replies(401, 403, 500),
        )(self.drain)
        return router

    async def drain(self, request: Request, admin: Admin) -> Response:
        await note(self._audit, "server.drain", admin)
        self._lifecycle.drain(self._linger_s)
        body = {"state": self._lifecycle.state, "linger_s": self._lifecycle.linger_left_s}
        return json_reply(orjson.dumps(body), self._headers(request))


async def note(audit: Audit, act: str, admin: str, **facts: object) -> None:
    """Write what an admin does to the audit file, or refuse to do it."""
    try:
        await asyncio.to_thread(audit.tell, act, by=admin, **facts)
    except OSError as error:
        raise ApiError(
            f"The audit file cannot be written ({error.strerror}), and nothing was done."
        ) from None
