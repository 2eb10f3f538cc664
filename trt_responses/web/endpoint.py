"""Endpoints: how a request becomes a reply, and how an error does.

A reply is an ASGI app. Knows no route.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from trt_responses.errors import ApiError, InvalidRequest, error_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from trt_responses.web.shared import Shared

    Answer = Callable[[Request, str], Awaitable[ASGIApp]]
    ErrorReply = Callable[[ApiError, dict[str, str]], Response]

logger = logging.getLogger(__name__)

ROUTING_CODES = {404: "unknown_url", 405: "method_not_allowed"}


class Endpoint:
    """A raw ASGI app: a function of the request and its owner makes or raises the reply."""

    def __init__(
        self, answer: Answer, shared: Shared, error_reply: ErrorReply | None = None
    ) -> None:
        """`error_reply` builds error bodies for APIs other than OpenAI's."""
        self._answer = answer
        self._error_reply = error_reply or fault
        self._guard = shared.guard
        self._headers = shared.headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            reply = await self._answer(request, self._guard.owner(request))
        except ClientDisconnect:
            return
        except Exception as error:  # no headers have gone, so that the client can get an error
            reply = reply_of(error, request, self._headers(request), self._error_reply)
        note_status(request, reply)
        await reply(scope, receive, send)


def note_status(request: Request, reply: ASGIApp) -> None:
    """Stores the status for request metrics; `send` is never wrapped."""
    request.scope.setdefault("state", {})["status"] = getattr(reply, "status_code", 200)


def reply_of(
    error: Exception,
    request: Request,
    headers: dict[str, str],
    error_reply: ErrorReply | None = None,
) -> Response:
    """The reply to a request that has raised, before any headers have gone."""
    if isinstance(error, HTTPException):
        headers = headers | dict(error.headers or {})
    return (error_reply or fault)(_refusal(error, request), headers)


def _refusal(error: Exception, request: Request) -> ApiError:
    method, path = request.method, request.scope["path"]
    match error:
        case ApiError():
            return error
        case RequestValidationError():
            return _invalid_parameter(error)
        case HTTPException():
            return InvalidRequest(
                f"{method} {path:.100}: {error.detail}.",
                status=error.status_code,
                code=ROUTING_CODES.get(error.status_code, "invalid_request"),
            )
    logger.error("failed to serve %s %s", method, path, exc_info=error)
    return ApiError(f"The server failed ({type(error).__name__}); the log has the details.")


def _invalid_parameter(error: RequestValidationError) -> ApiError:
    first = error.errors()[0]
    name, why = first["loc"][-1], first["msg"].removeprefix("Value error, ")
    why = why.replace("Input should", "it should")
    return InvalidRequest(
        f"Invalid value for '{name}': {why}, got {first['input']!r:.60}.",
        param=str(name),
        code="invalid_value",
    )


def json_reply(body: bytes, headers: dict[str, str], status: int = 200) -> Response:
    """A reply of JSON."""
    return Response(body, status, headers, media_type="application/json")


def fault(error: ApiError, headers: dict[str, str]) -> Response:
    """The reply of an error: its status, and a body in the API's shape."""
    body = orjson.dumps({"error": error_body(error)})
    return json_reply(body, {**headers, **error.headers}, error.status)
