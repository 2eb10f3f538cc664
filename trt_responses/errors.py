"""Errors in two trees: those sent to a client, and those that stop a start.

Knows the API's error shape and nothing of HTTP servers, events or engines.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TypedDict

RETRY_AFTER_S = (1, 5)
"""Bounds of `Retry-After`, in seconds. Each client gets a random number between them, so that
refused clients do not all return at once."""

IN_PROGRESS_S = 2
"""Seconds after which a client may ask again for a response that is still being made."""


class ErrorBody(TypedDict):
    """An error as the API writes it."""

    message: str
    type: str
    param: str | None
    code: str | None


class ApiError(Exception):
    """An error sent to a client: a status and a body, or an event once the headers are sent."""

    status = 500
    type = "server_error"
    code: str | None = "server_error"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        type: str | None = None,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`headers` are sent beside the body, and tell more than the message."""
        super().__init__(message)
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers |= {"retry-after": str(retry_after_s), "x-should-retry": "true"}
        self.message = message
        self.status = self.status if status is None else status
        self.type = self.type if type is None else type
        self.code = self.code if code is None else code
        self.param = param
        self.retry_after_s = retry_after_s


class InvalidRequest(ApiError):
    """The request is wrong; sending it again will not help."""

    status = 400
    type = "invalid_request_error"
    code: str | None = None


class Unsupported(InvalidRequest):
    """The request asks for something this server does not do, and says so before any token."""

    code = "unsupported_parameter"


def invalid_value(param: str, why: str, *, code: str = "invalid_value") -> InvalidRequest:
    """The error of a value that cannot be used; `why` ends without a full stop."""
    return InvalidRequest(f"Invalid value for '{param}': {why}.", param=param, code=code)


def unsupported_value(param: str, why: str) -> Unsupported:
    """The error of a value that this server cannot serve; `why` ends without a full stop."""
    return Unsupported(f"Unsupported value for '{param}': {why}.", param=param)


def refuse_longer(tokens: int, most: int | None) -> None:
    """Raise when a prompt is too long; the one place that judges it. A caller that stopped counting
    early gives the tokens that it counted."""
    if most is not None and tokens > most:
        raise InvalidRequest(
            f"The prompt is too long: at least {tokens} tokens, limit {most}.",
            param="input",
            code="context_length_exceeded",
        )


class Unauthorized(ApiError):
    """The request has no key, or one that is not known."""

    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"


class Forbidden(ApiError):
    """The caller is not allowed here at all: a foreign Host or Origin."""

    status = 403
    type = "invalid_request_error"
    code = "forbidden"


class NotFound(ApiError):
    """What the request names does not exist, or is another owner's."""

    status = 404
    type = "invalid_request_error"
    code = None


class Overloaded(ApiError):
    """The owner has used up what it may; it should come back after `retry_after_s`."""

    status = 429
    type = "too_many_requests"
    code = "rate_limit_exceeded"


class Unavailable(ApiError):
    """The server cannot do it now and soon will: clients should come back with the same request.

    A code must be none that Codex takes as final, as it does `server_is_overloaded` and
    `slow_down`.
    """

    status = 503
    type = "server_error"

    def __init__(self, message: str, *, retry_after_s: int | None = None) -> None:
        wait_s = random.randint(*RETRY_AFTER_S) if retry_after_s is None else retry_after_s
        super().__init__(message, retry_after_s=wait_s)


class ServerStarting(Unavailable):
    """The server is still loading."""

    code = "starting"


class ServerDraining(Unavailable):
    """The server is being stopped; another one, or its successor, will take the request."""

    code = "server_draining"


class ServerBusy(Unavailable):
    """The server has more work than it takes, over all owners."""

    code = "server_busy"


class ServerShutdown(ApiError):
    """Ends the responses that a stopped server did not finish in time."""

    code = "server_shutdown"

    def __init__(self) -> None:
        super().__init__(
            "The server was stopped before the response was done: send the request again."
        )


class EngineUnavailable(ApiError):
    """The engine is starting, dead, or refuses work."""

    status = 503
    type = "server_error"
    code = "server_error"


class EngineLost(ApiError):
    """The engine went away under a response that cannot go on with the next one."""

    status = 503
    code = "engine_lost"


class StoreUnavailable(ApiError):
    """Stored responses cannot be read or kept now; a request with `store: false` needs none."""

    status = 503
    type = "server_error"
    code = "server_error"


def error_body(error: ApiError) -> ErrorBody:
    """An error as the API writes it; nothing else writes one."""
    return {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }


class StartupError(Exception):
    """Stops a start with one sentence; never reaches a client."""


class UsageError(StartupError):
    """Wrong use of a command or a setting: an unknown name, a bad value, a missing file."""


def root_cause(error: BaseException) -> str:
    """The first cause of an error, on one line, with its class where the text alone says little."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    plain = isinstance(error, (RuntimeError, ValueError, OSError, ImportError)) and text
    return text if plain else f"{type(error).__name__}: {text}".removesuffix(": ")
