"""The page at `/`."""

from __future__ import annotations

from trt_responses.apis.playground.endpoint import routes
from trt_responses.apis.playground.settings import PlaygroundSettings
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.add_routes(95, routes)
    if PlaygroundSettings.of(server.settings).playground:
        server.hints.insert(0, "open {base}/ in a browser")
