"""Base64 and the like, tokenised in half the time, where the dialect has o200k's tokeniser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.dense_text.dense import Later
from trt_responses.harmony.write.render import Renderer

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    for renderer in (dialect.renderer for dialect in server.dialects()):
        if isinstance(renderer, Renderer) and renderer.tokeniser.shortcut is None:
            renderer.tokeniser.shortcut = Later(renderer.tokeniser)
