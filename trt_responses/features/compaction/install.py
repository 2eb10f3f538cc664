"""Compactions and their endpoint, where what they say can be sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.compaction.endpoint import routes
from trt_responses.features.compaction.feature import Compactions
from trt_responses.prompt.carried import NOTHING_CARRIED

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    if server.carried is not NOTHING_CARRIED:
        server.features.append(Compactions(server.carried))
        server.add_routes(5, routes)
