"""The routes that orchestrators, routers and people ask for the server's state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.health.endpoint import HealthChecks

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.add_routes(
        60, lambda shared: [HealthChecks(server.health, shared.headers, about=shared.about)]
    )
