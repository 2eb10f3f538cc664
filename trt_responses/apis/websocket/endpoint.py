"""`/v1/responses` as a WebSocket: who may connect, and how many.

Knows the guard and connections; what a connection does is in `connection.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from functools import partial

from starlette.requests import Request
from starlette.routing import WebSocketRoute
from starlette.types import Receive, Scope, Send

from trt_responses.apis.websocket.connection import Connection
from trt_responses.apis.websocket.intake import Intake
from trt_responses.apis.websocket.settings import SocketSettings
from trt_responses.errors import Overloaded
from trt_responses.health.lifecycle import Lifecycle
from trt_responses.web.endpoint import reply_of
from trt_responses.web.guard import ANYONE
from trt_responses.web.headers import dialect_of
from trt_responses.web.shared import Shared

SCHEMES = {"ws": "http", "wss": "https"}


def routes(shared: Shared) -> list[WebSocketRoute]:
    """The endpoint of this folder, where WebSockets are switched on."""
    most = SocketSettings.of(shared.settings).websockets
    return [WebSocketRoute(Sockets.path, Sockets(shared, most))] if most else []


class Sockets:
    """The endpoint: a raw ASGI app that accepts connections, and ends them when the server must."""

    path = "/v1/responses"

    def __init__(self, shared: Shared, most: int) -> None:
        self._shared, self._most = shared, most
        self._intake = Intake()
        self._open: set[Connection] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _upgrade(scope, receive)
        await receive()  # `websocket.connect`
        try:
            connection = self._connection(request, send)
        except Exception as error:  # nothing was accepted: it is an HTTP request yet
            await reply_of(error, request, self._shared.headers(request))(scope, receive, send)
            return
        headers = [(b"x-request-id", scope["state"]["request_id"].encode())]
        self._open.add(connection)
        try:
            with suppress(OSError):  # the client has left before it was accepted
                await send({"type": "websocket.accept", "headers": headers})
                await connection.serve(receive)
        finally:
            self._open.discard(connection)

    def _connection(self, request: Request, send: Send) -> Connection:
        """A connection for a client that may connect."""
        owner = partial(self._shared.guard.owner, request)
        dialect = dialect_of(request)
        connection = Connection(self._shared, self._intake, send, owner, dialect)
        self._shared.of(Lifecycle).check_takes_work()
        of_owner = [each for each in self._open if each.owner == connection.owner]
        share = self._most if connection.owner == ANYONE else max(1, self._most // 2)
        if not self._has_place(of_owner, share):
            raise _too_many(f"the limit of one owner is {share}")
        if not self._has_place(self._open, self._most):
            raise _too_many(f"the limit is {self._most}")
        return connection

    def _has_place(self, connections: Collection[Connection], most: int) -> bool:
        """Whether there is a place for one more; one that has been idle for long leaves its own."""
        if len(connections) < most:
            return True
        idlest = max(connections, key=lambda each: each.idle_looks)
        if not idlest.idle_looks:
            return False
        idlest.end_idle()
        self._open.discard(idlest)
        return True

    @staticmethod
    def protocol(read_timeout_s: float) -> type[asyncio.Protocol]:
        """What serves a connection under uvicorn."""
        from trt_responses.apis.websocket.protocol import socket_protocol

        return socket_protocol(read_timeout_s=read_timeout_s)

    def drain(self) -> None:
        """Let what is being made end, and close each connection behind it."""
        for connection in tuple(self._open):
            connection.end()


def _too_many(why: str) -> Overloaded:
    return Overloaded(
        f"Too many WebSocket connections are open: {why} (TRT_RESPONSES_WEBSOCKETS). Close one, or "
        "try again later.",
        retry_after_s=5,
    )


def _upgrade(scope: Scope, receive: Receive) -> Request:
    """The HTTP request that asks for a WebSocket."""
    scheme = SCHEMES.get(scope.get("scheme", ""), "http")
    return Request({**scope, "type": "http", "method": "GET", "scheme": scheme}, receive)
