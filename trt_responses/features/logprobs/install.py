"""Log probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.logprobs.feature import Logprobs

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.features.append(Logprobs())
