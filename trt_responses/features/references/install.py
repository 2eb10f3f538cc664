"""Items that refer to others, and items that a client carries sealed."""

from __future__ import annotations

from trt_responses.features.references.carrier import Carrier
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.carrier = Carrier(server.sealing)
