"""When a request arrived, and its id. An ASGI layer that leaves `receive` and `send` untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send


class Arrival:
    """Writes both into a copy of `scope["state"]`, before anything else sees the request."""

    def __init__(
        self, app: ASGIApp, *, clock_ns: Callable[[], int], mint: Callable[[str], str]
    ) -> None:
        self._app = app
        self._clock_ns = clock_ns
        self._mint = mint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            noted = {"arrival_ns": self._clock_ns(), "request_id": self._mint("req")}
            scope = {**scope, "state": {**scope.get("state", {}), **noted}}
        await self._app(scope, receive, send)
