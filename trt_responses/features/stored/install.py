"""Stored responses: retrieved, streamed again, deleted, and their input listed."""

from __future__ import annotations

from trt_responses.features.stored.endpoint import Stored, retrieve_route
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.add_routes(0, lambda shared: retrieve_route(shared, server.dialect_of))
    server.add_routes(30, lambda shared: [Stored(shared, server.dialect_of)])
