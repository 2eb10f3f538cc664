"""Thoughts as their summaries, where the operator has them so and a request wants one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.summaries.feature import Summaries
from trt_responses.features.summaries.settings import SummarySettings

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    if SummarySettings.of(server.settings).thought_summaries:
        server.features.append(Summaries())
