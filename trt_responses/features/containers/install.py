"""The endpoints of containers, where a tool has any."""

from __future__ import annotations

from trt_responses.features.containers.endpoint import routes
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.add_routes(20, routes)
