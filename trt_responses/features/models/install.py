"""The list of models: the served one, by each of its names."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trt_responses.features.models.endpoint import Models

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    about = {"object": "model", "created": int(time.time()), "owned_by": "local"}
    server.add_routes(
        60, lambda shared: [Models(server.names, shared.headers, about | server.model_facts)]
    )
