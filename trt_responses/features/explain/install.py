"""What a response was made of, kept for a while."""

from __future__ import annotations

from trt_responses.features.explain.endpoint import Explain
from trt_responses.features.explain.explanations import Explanations
from trt_responses.features.explain.settings import ExplainNumbers
from trt_responses.features.run_traces.settings import TraceSettings
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    settings = server.settings
    kept = Explanations(ExplainNumbers.of(settings).explain_bytes)
    server.provide(kept)
    server.on_delete.append(kept.forget)
    if TraceSettings.of(settings).explain != "off":
        server.listeners.append(kept)
    server.add_routes(35, lambda shared: [Explain(shared, server.dialect_of)])
