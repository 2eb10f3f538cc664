"""Lists of tools that came before are not read again."""

from __future__ import annotations

from trt_responses.features.known_tools.known import KNOWN
from trt_responses.setup.server import Server
from trt_responses.wire.known_tools import MEMORIES


def install(server: Server) -> None:
    MEMORIES[:] = [KNOWN]
