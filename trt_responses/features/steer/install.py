"""Steering of running responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.steer.endpoint import routes

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.add_routes(26, routes)
