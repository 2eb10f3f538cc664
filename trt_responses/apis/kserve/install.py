"""The KServe protocol."""

from __future__ import annotations

from trt_responses.apis.kserve.endpoints import routes
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.add_routes(10, routes)
