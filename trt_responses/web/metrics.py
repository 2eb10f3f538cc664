"""`/metrics`: Prometheus text, or OpenMetrics for those who accept it."""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request  # noqa: TC002  # FastAPI reads the annotations
from starlette.responses import PlainTextResponse, Response

from trt_responses.access.keys import digest_of
from trt_responses.errors import Unauthorized
from trt_responses.telemetry.requests import RequestFacts
from trt_responses.web.framework import Anybody, ColdRoute, replies
from trt_responses.web.guard import key_of
from trt_responses.web.headers import header

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from trt_responses.access.keys import KeyRing
    from trt_responses.response.run import Run
    from trt_responses.telemetry.metrics import Metrics
    from trt_responses.telemetry.requests import RequestListener
    from trt_responses.web.headers import ReplyHeaders

OPEN_METRICS = "application/openmetrics-text"
OPEN_METRICS_TYPE = f"{OPEN_METRICS}; version=1.0.0; charset=utf-8"
UNKNOWN = "unknown"
CLIENT_LEFT = 499
"""The status of a request whose client left before any reply; nobody gets it. nginx calls it so."""
TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Counted:
    """An ASGI layer that tells what became of each request, the one next to the routes. An
    endpoint's name is its route's, never a request's path."""

    def __init__(
        self, app: ASGIApp, *, listeners: Sequence[RequestListener], clock_ns: Callable[[], int]
    ) -> None:
        self._app = app
        self._listeners = listeners
        self._clock_ns = clock_ns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        except HTTPException as error:  # no route answers: any method may have been sent
            self._tell(scope, "any", UNKNOWN, error.status_code)
            raise
        except BaseException:
            self._count(scope)
            raise
        self._count(scope)

    def _count(self, scope: Scope) -> None:
        state = scope["state"]
        route, status = scope.get("route"), state.get("status", CLIENT_LEFT)
        endpoint = route.path if route else state.get("endpoint", UNKNOWN)
        self._tell(scope, scope["method"], endpoint, status)

    def _tell(self, scope: Scope, method: str, endpoint: str, status: int) -> None:
        state = scope["state"]
        facts = RequestFacts(
            request_id=state["request_id"],
            method=method,
            endpoint=endpoint,
            status=status,
            end=_end(state.get("run")),
            total_ns=self._clock_ns() - state["arrival_ns"],
        )
        for listener in self._listeners:
            listener.request_ended(facts)


def _end(run: Run | None) -> str:
    """How the response ended that a request asked for; one in the background goes on."""
    if run is None:
        return "none"
    return run.log.begun.status if run.log.closed else "background"


class MetricsPage:
    """A scrape. It is open to anybody, or to those with a key of its own and to admins."""

    def __init__(
        self, metrics: Metrics, headers: ReplyHeaders, *, key: str | None, keys: KeyRing
    ) -> None:
        self._metrics = metrics
        self._headers = headers
        self._key_digest = None if key is None else digest_of(key)
        self._keys = keys

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
        if OPEN_METRICS in (header(request, b"accept") or "").lower():
            body, content_type = self._metrics.open_metrics(), OPEN_METRICS_TYPE
        else:
            body, content_type = self._metrics.text(), TEXT_TYPE
        return Response(body, headers=self._headers(request) | {"content-type": content_type})

    def _check_key(self, request: Request) -> None:
        if self._key_digest is None:
            return
        key = key_of(request)
        if not compare_digest(digest_of(key), self._key_digest) and not self._keys.is_admin(key):
            raise Unauthorized(
                "The metrics ask for a key of their own, or an admin's: send it as "
                "`Authorization: Bearer KEY`."
            )
