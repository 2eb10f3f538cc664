"""What each run did, for those of its listeners that tell it."""

from __future__ import annotations

from trt_responses.features.run_traces.listener import SegmentLines
from trt_responses.features.run_traces.trace import RECORDER
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.recorder = RECORDER
    server.listeners.append(SegmentLines())
