"""An ASGI layer that answers the paths of the API in place of the app behind it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import ClientDisconnect, Request

from trt_responses.errors import ApiError, InvalidRequest, error_body
from trt_responses.features.cassette.exchanges import Cleaner
from trt_responses.frozen import dataclass
from trt_responses.web.body import read_bytes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from trt_responses.wire.limits import RequestLimits

PATHS = "/v1/"
CREDENTIALS = ("authorization", "x-api-key", "api-key", "cookie", "proxy-authorization")


class Sent(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    headers: Sequence[tuple[str, str]]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "surrogateescape")

    def cleaner(self) -> Cleaner:
        """Takes out the secrets that this request was sent with too."""
        own = [value for name, value in self.headers if name in CREDENTIALS]
        words = {value.rpartition(" ")[2] for value in own}
        return Cleaner(*(word for word in words if len(word) >= 8))


@dataclass(frozen=True)
class Layer:
    """What recording and replaying have in common: which requests they answer, once whole."""

    app: ASGIApp
    hosts: tuple[str, ...]
    limits: RequestLimits
    answer: Callable[[Sent, Send], Awaitable[None]]
    """Sends the reply. It may raise an `ApiError` before the reply's head is sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._answers(scope):
            return await self.app(scope, receive, send)
        headers = [(name.decode("latin-1"), each.decode("latin-1")) for name, each in _of(scope)]
        query = scope["query_string"].decode("latin-1")
        path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
        path = f"{path}{'?' * bool(query)}{query}"
        try:
            body = await read_bytes(Request(scope, receive), self.limits)
            await self.answer(Sent(scope["method"], path, headers, body), send)
        except ApiError as error:
            await error_reply(send, path, error)
        except RecursionError:
            await error_reply(send, path, InvalidRequest("The body is nested too deeply."))
        except (ClientDisconnect, ConnectionAbortedError):
            return None  # the server finds the reply unfinished, and closes the connection

    def _answers(self, scope: Scope) -> bool:
        """Whether it is of the API, and addressed to this server: the app refuses what is not."""
        if scope["type"] != "http" or not scope["path"].startswith(PATHS):
            return False
        host = dict(_of(scope)).get(b"host", b"").decode("latin-1")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return "*" in self.hosts or name in self.hosts


def _of(scope: Scope) -> Sequence[tuple[bytes, bytes]]:
    headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
    return headers


async def start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    """Send a reply's head; the body's length shows when it ends."""
    passed = [
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in headers.items()
        if name not in ("connection", "content-length", "keep-alive", "transfer-encoding")
    ]
    await send({"type": "http.response.start", "status": status, "headers": passed})


async def error_reply(send: Send, path: str, error: ApiError) -> None:
    """An error in the shape of the path's API."""
    whole: dict[str, object] = {"error": error_body(error)}
    if path.startswith(f"{PATHS}messages"):
        whole = {"type": "error", "error": {"type": error.type, "message": error.message}}
    await start(send, error.status, {"content-type": "application/json"})
    await send({"type": "http.response.body", "body": json.dumps(whole).encode()})
