"""What `include` adds to the last snapshot."""

from __future__ import annotations

from trt_responses.features.include.include import Inclusion
from trt_responses.features.run_traces.settings import TraceSettings
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    shows = TraceSettings.of(server.settings).explain == "full"
    server.features.append(Inclusion(server.dialect_of, tells_messages=shows))
