"""Compactions and their endpoint, where what they say can be sealed."""

from __future__ import annotations

from trt_responses.features.compaction.endpoint import routes
from trt_responses.features.compaction.feature import Compactions
from trt_responses.features.compaction.items import CompactionTrigger
from trt_responses.setup.server import Server
from trt_responses.wire.past_calls import KINDS


def install(server: Server) -> None:
    if server.sealing is not None:
        KINDS["compaction_trigger"] = CompactionTrigger
        server.features.append(Compactions(server.sealing))
        server.add_routes(5, routes)
