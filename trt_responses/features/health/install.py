"""The routes that orchestrators, routers and people ask for the server's state."""

from __future__ import annotations

from trt_responses.features.health.endpoint import HealthChecks
from trt_responses.features.health.health import Health
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    def build() -> None:
        parts = server.parts
        server.provide(Health(server.lifecycle, parts.engine, parts.admission, server.stall))

    server.when_built(build)
    server.add_routes(
        60,
        lambda shared: [HealthChecks(shared.of(Health), shared.headers, about=shared.about)],
    )
