"""When a request arrived, its id and its caller's trace. An ASGI layer that leaves `receive` and
`send` untouched."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trt_responses.response.origin import ORIGIN, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send


REQUEST_ID = re.compile(rb"[\w.:@/+=-]{1,128}", re.ASCII)
TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
MAX_TRACESTATE_BYTES = 512


class Arrival:
    """Writes them into a copy of `scope["state"]`, before anything else sees the request. An id
    that the client gives is kept, so that its log and ours can be laid side by side."""

    def __init__(
        self, app: ASGIApp, *, clock_ns: Callable[[], int], mint: Callable[[str], str]
    ) -> None:
        self._app = app
        self._clock_ns = clock_ns
        self._mint = mint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            arrival_ns = self._clock_ns()
            given, traced = _given(scope["headers"])
            noted: dict[str, Any] = {
                "arrival_ns": arrival_ns,
                "request_id": given or self._mint("req"),
            }
            ORIGIN.set(Origin(noted["request_id"], traced))
            scope = {**scope, "state": {**scope.get("state", {}), **noted}}
        await self._app(scope, receive, send)


def _given(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, Mapping[str, str]]:
    """The request's id and trace, as far as the client gives them in a form that can be told."""
    request_id, parent, state = b"", b"", b""
    for name, value in headers:
        if name == b"x-request-id" and REQUEST_ID.fullmatch(value):
            request_id = value
        elif name == b"traceparent" and TRACEPARENT.fullmatch(value):
            parent = value
        elif name == b"tracestate" and len(value) <= MAX_TRACESTATE_BYTES:
            state = value
    if not parent:
        return request_id.decode(), {}
    traced = {"traceparent": parent.decode()}
    if state:
        traced["tracestate"] = state.decode("latin-1")
    return request_id.decode(), traced
