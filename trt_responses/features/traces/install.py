"""Spans of runs, sent where the settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses import __version__
from trt_responses.features.traces.settings import TraceSettings
from trt_responses.features.traces.traces import traces_to

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    own = TraceSettings.of(server.settings)
    if own.otlp_endpoint:
        traces = traces_to(own.otlp_endpoint, __version__)
        server.listeners.append(traces)
        server.lives.append(traces.life)
