"""Preflights: requests by which a browser asks whether a page of another origin may send its own.

Knows origins and headers; knows no route and no key, for a preflight carries none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from trt_responses.web.endpoint import fault
from trt_responses.web.headers import header, origin_refused

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from trt_responses.web.headers import Origins, ReplyHeaders

METHODS = "GET, HEAD, POST, DELETE"
PREFLIGHT_S = 7200
"""How long a browser may remember the answer; none remembers it for longer."""


class Preflights:
    """An ASGI layer that answers preflights; every other request passes untouched."""

    def __init__(self, app: ASGIApp, *, origins: Origins, headers: ReplyHeaders) -> None:
        self._app = app
        self._origins = origins
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            request = Request(scope)
            origin = header(request, b"origin")
            if origin is not None and header(request, b"access-control-request-method"):
                app = self._answer(request, origin)
        await app(scope, receive, send)

    def _answer(self, request: Request, origin: str) -> Response:
        if not self._origins.allow(origin):
            return fault(origin_refused(origin), self._headers(request))
        headers = {
            "access-control-allow-methods": METHODS,
            "access-control-max-age": str(PREFLIGHT_S),
        }
        if wanted := header(request, b"access-control-request-headers"):
            headers["access-control-allow-headers"] = wanted
        if header(request, b"access-control-request-private-network"):
            headers["access-control-allow-private-network"] = "true"
        return Response(status_code=204, headers=self._headers(request) | headers)
