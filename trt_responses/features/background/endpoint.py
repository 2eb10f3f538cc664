"""`POST /v1/responses/{id}/cancel`: a background response ended before its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002  # FastAPI reads the annotations
from starlette.responses import Response  # noqa: TC002  # likewise

from trt_responses.features.background.background import Background
from trt_responses.features.background.jobs import BackgroundJobs
from trt_responses.store import Job
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.web.stored import check_background, there

if TYPE_CHECKING:
    from trt_responses.web.shared import Shared


def routes(shared: Shared) -> list[Cancel]:
    """The endpoints of this folder."""
    return [Cancel(shared)]


class Cancel:
    """The endpoint."""

    def __init__(self, shared: Shared) -> None:
        self._store = shared.parts.store
        self._background = shared.of(Background)
        self._jobs = shared.of(BackgroundJobs)
        self._headers = shared.headers

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, prefix="/v1/responses/{response_id}")
        router.post(
            "/cancel", summary="Stop a background response", responses=replies(400, 401, 403, 404)
        )(self.cancel)
        return router

    async def cancel(self, request: Request, response_id: str, owner: Owner) -> Response:
        found = there(response_id, await self._store.get(response_id, owner))
        check_background(found, "response_id", ": hang up to end such a one")
        if isinstance(found, Job) and not found.lost:
            found = there(found.id, await self._background.cancel(found.id, owner))
        body = self._jobs.snapshot(found, owner) if isinstance(found, Job) else found.body
        return json_reply(body, self._headers(request))
