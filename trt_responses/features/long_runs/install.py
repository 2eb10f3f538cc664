"""Texts without word breaks, tokenised in linear time, where the dialect has o200k's tokeniser."""

from __future__ import annotations

from trt_responses.features.long_runs.runs import Runs
from trt_responses.harmony.write.render import Renderer
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    for renderer in (dialect.renderer for dialect in server.dialects()):
        if isinstance(renderer, Renderer) and renderer.tokeniser.long_runs is None:
            tokeniser = renderer.tokeniser
            tokeniser.long_runs = Runs(tokeniser.native, tokeniser.token_bytes)
