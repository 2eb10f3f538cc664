"""Steering of running responses."""

from __future__ import annotations

from trt_responses.features.steer.endpoint import routes
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.add_routes(26, routes)
