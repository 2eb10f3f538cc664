"""Preflights: requests by which a browser asks whether a page of another origin may send its own.

Knows origins and headers; knows no route and no key, for a preflight carries none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from trt_responses.web.endpoint import fault
from trt_responses.web.headers import header, origin_refused

if TYPE_CHECKING:
    from starlette.requests import Request

    from trt_responses.web.headers import Origins, ReplyHeaders

METHODS = "GET, HEAD, POST, DELETE"
PREFLIGHT_S = 7200
"""How long a browser may remember the answer; none remembers it for longer."""


def preflight_reply(
    request: Request, origins: Origins, reply_headers: ReplyHeaders
) -> Response | None:
    """The reply to a preflight; None for an OPTIONS that is none."""
    origin = header(request, b"origin")
    if origin is None or not header(request, b"access-control-request-method"):
        return None
    if not origins.allow(origin):
        return fault(origin_refused(origin), reply_headers(request))
    headers = {
        "access-control-allow-methods": METHODS,
        "access-control-max-age": str(PREFLIGHT_S),
    }
    if wanted := header(request, b"access-control-request-headers"):
        headers["access-control-allow-headers"] = wanted
    if header(request, b"access-control-request-private-network"):
        headers["access-control-allow-private-network"] = "true"
    return Response(status_code=204, headers=reply_headers(request) | headers)
