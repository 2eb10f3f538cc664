"""The endpoints of containers, where a tool has any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.containers.endpoint import routes

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.add_routes(20, routes)
