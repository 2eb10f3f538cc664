"""Preflights of browsers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trt_responses.features.cors.cors import preflight_reply

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.preflight = partial(
        preflight_reply, origins=server.origins, reply_headers=server.headers
    )
