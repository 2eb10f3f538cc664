"""`/metrics`: Prometheus text, or OpenMetrics for those who accept it."""

from __future__ import annotations

import hashlib
from hmac import compare_digest

from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import PlainTextResponse, Response

from trt_responses.errors import Unauthorized
from trt_responses.features.metrics.metrics import Metrics
from trt_responses.features.metrics.settings import MetricSettings
from trt_responses.web.framework import Anybody, ColdRoute, replies
from trt_responses.web.guard import key_of
from trt_responses.web.headers import header
from trt_responses.web.shared import Shared

OPEN_METRICS = "application/openmetrics-text"
OPEN_METRICS_TYPE = f"{OPEN_METRICS}; version=1.0.0; charset=utf-8"
TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsPage:
    """A scrape. It is open to anybody, or to those with a key of its own and to admins."""

    def __init__(self, shared: Shared) -> None:
        self._metrics = shared.of(Metrics)
        self._headers = shared.headers
        self._guard = shared.guard
        key = MetricSettings.of(shared.settings).metrics_key
        self._key_digest = None if key is None else _digest_of(key)

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, dependencies=[Anybody])
        router.get(
            "/metrics",
            summary="What Prometheus scrapes",
            response_class=PlainTextResponse,
            responses={401: replies(401)[401]},
        )(self.scrape)
        return router

    async def scrape(self, request: Request) -> Response:
        self._check_key(request)
        others = await self._metrics.others()
        if OPEN_METRICS in (header(request, b"accept") or "").lower():
            body, content_type = self._metrics.open_metrics(others), OPEN_METRICS_TYPE
        else:
            body, content_type = self._metrics.text(others), TEXT_TYPE
        return Response(body, headers=self._headers(request) | {"content-type": content_type})

    def _check_key(self, request: Request) -> None:
        if self._key_digest is None:
            return
        is_ours = compare_digest(_digest_of(key_of(request)), self._key_digest)
        if not is_ours and self._guard.admin_of(request) is None:
            raise Unauthorized(
                "The metrics ask for a key of their own, or an admin's: send it as "
                "`Authorization: Bearer KEY`."
            )


def _digest_of(key: str) -> bytes:
    """A digest, so that no comparison's time tells how long the key is."""
    return hashlib.sha256(key.encode()).digest()
