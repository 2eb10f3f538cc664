"""Pages of other origins that may use the API."""

from __future__ import annotations

from functools import partial

from trt_responses.features.cors.cors import Origins, preflight_reply
from trt_responses.features.cors.settings import CorsSettings
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    origins = Origins(CorsSettings.of(server.settings).allowed_origins)
    server.allows_origin = origins.allow
    if origins.any:
        server.headers.for_pages = origins.reply_headers
    server.preflight = partial(preflight_reply, origins=origins, reply_headers=server.headers)
