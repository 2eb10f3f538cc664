"""Lists of tools that came before are not read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.known_tools.known import KNOWN
from trt_responses.wire.known_tools import MEMORIES

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    MEMORIES[:] = [KNOWN]
