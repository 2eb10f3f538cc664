"""Responses over a WebSocket."""

from __future__ import annotations

from trt_responses.apis.websocket.endpoint import routes
from trt_responses.apis.websocket.request import SOCKET
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.field_tables["/v1/responses over WebSocket"] = SOCKET
    server.add_routes(12, routes)
