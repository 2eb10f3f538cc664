"""What every endpoint shares: the guard, the headers, and the shape of an error.

An endpoint is a raw ASGI app, so that nothing stands between a stream and the server's `send`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from trt_responses.errors import ApiError, error_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from trt_responses.web.guard import Guard
    from trt_responses.web.headers import ReplyHeaders

    Answer = Callable[[Request, str], Awaitable[ASGIApp]]

logger = logging.getLogger(__name__)

ROUTING_CODES = {404: "unknown_url", 405: "method_not_allowed"}


class Endpoint:
    """Runs a function of the request and its owner; what it returns, or raises, is the reply."""

    def __init__(
        self,
        answer: Callable[[Request, str], Awaitable[ASGIApp]],
        *,
        guard: Guard,
        headers: ReplyHeaders,
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
        except Exception as bug:  # ours; no headers have gone, so that the client can be told
            logger.exception("%s %s broke", request.method, request.scope["path"])
            told = ApiError(f"The server failed ({type(bug).__name__}); the log has the details.")
            reply = fault(told, self._headers(request))
        await reply(scope, receive, send)


class Unrouted:
    """Unknown paths and wrong methods, in the API's shape too.

    Stands in for the framework's own layers around a router, which wrap `send` (0.5 µs a token).
    """

    def __init__(self, app: ASGIApp, *, headers: ReplyHeaders) -> None:
        self._app = app
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except HTTPException as error:  # the router's, which has sent nothing
            request = Request(scope, receive)
            told = ApiError(
                f"{request.method} {request.scope['path']:.100}: {error.detail}.",
                status=error.status_code,
                type="invalid_request_error",
                code=ROUTING_CODES.get(error.status_code, "invalid_request"),
            )
            headers = self._headers(request) | dict(error.headers or {})
            await fault(told, headers)(scope, receive, send)


def json_reply(body: bytes, headers: dict[str, str], status: int = 200) -> Response:
    return Response(body, status, headers, media_type="application/json")


def fault(error: ApiError, headers: dict[str, str]) -> Response:
    """An error before any headers have gone: a status and a body."""
    if error.retry_after_s is not None:
        headers = {**headers, "retry-after": str(error.retry_after_s)}
    return json_reply(orjson.dumps({"error": error_body(error)}), headers, error.status)
