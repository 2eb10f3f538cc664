"""What every endpoint shares: the guard, the headers, and the shape of an error.

An endpoint is a raw ASGI app, so that nothing stands between a stream and the server's `send`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from trt_responses.errors import ApiError, error_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from trt_responses.web.guard import Guard

    Answer = Callable[[Request, str], Awaitable[ASGIApp]]


class Endpoint:
    """Runs a function of the request and its owner; what it returns, or raises, is the reply."""

    def __init__(
        self,
        answer: Callable[[Request, str], Awaitable[ASGIApp]],
        *,
        guard: Guard,
        headers: Headers,
    ) -> None:
        self._answer = answer
        self._guard = guard
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            reply = await self._answer(request, self._guard.owner(request))
        except ApiError as error:
            reply = fault(error, self._headers(request))
        except ClientDisconnect:
            return
        await reply(scope, receive, send)


class Headers:
    """The headers of every reply."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns

    def __call__(self, request: Request, **more: str) -> dict[str, str]:
        state = request.scope.get("state", {})
        spent_ms = (self._clock_ns() - state.get("arrival_ns", self._clock_ns())) // 1_000_000
        return {
            "x-request-id": state.get("request_id", ""),
            "openai-processing-ms": str(spent_ms),
            "cache-control": "no-store",
            **{name.replace("_", "-"): value for name, value in more.items()},
        }


def json_reply(body: bytes, headers: dict[str, str], status: int = 200) -> Response:
    return Response(body, status, headers, media_type="application/json")


def fault(error: ApiError, headers: dict[str, str]) -> Response:
    """An error before any headers have gone: a status and a body."""
    if error.retry_after_s is not None:
        headers = {**headers, "retry-after": str(error.retry_after_s)}
    return json_reply(orjson.dumps({"error": error_body(error)}), headers, error.status)
