"""Pages of other origins: which may use the API, what their browsers are shown, and preflights, by
which a browser asks whether a page may send a request.

Knows origins and headers; knows no route and no key, for a preflight carries none.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response

from trt_responses.web.endpoint import fault
from trt_responses.web.headers import ReplyHeaders, header, origin_refused

METHODS = "GET, HEAD, POST, DELETE"
PREFLIGHT_S = 7200
"""How long a browser may remember the answer; none remembers it for longer."""

EXPOSED = ", ".join(
    (
        *("x-request-id", "openai-processing-ms", "retry-after", "x-should-retry"),
        *("x-trt-dropped-tools", "x-trt-engine", "x-trt-engine-gone", "x-trt-idempotent-replay"),
        *("x-trt-ignored", "x-trt-schema-left", "x-trt-truncated"),
        *(
            f"x-ratelimit-{part}-{what}"
            for part in ("limit", "remaining", "reset")
            for what in ("requests", "tokens")
        ),
    )
)
"""Headers of our replies that a page of another origin may read."""


class Origins:
    """The origins whose pages may use the API; `*` stands for all of them."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = frozenset(allowed)
        self.any = bool(self._allowed)

    def allow(self, origin: str) -> bool:
        return origin in self._allowed or "*" in self._allowed

    def reply_headers(self, request: Request) -> dict[str, str]:
        """Headers by which a browser shows a reply to the page that requested it."""
        origin = header(request, b"origin")
        if origin is None or not self.allow(origin):
            return {"vary": "Origin"}
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": EXPOSED,
            "vary": "Origin",
        }


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
