"""Headers for what stands between this server and its engine."""

from __future__ import annotations

from trt_responses.features.engine_headers.feature import EngineHeaders
from trt_responses.features.engine_headers.settings import EngineHeaderSettings
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    own = EngineHeaderSettings.of(server.settings)
    if own.engine_headers:
        server.features.append(EngineHeaders(own.engine_headers))
