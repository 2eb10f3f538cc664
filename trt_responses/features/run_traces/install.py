"""What each run did, for those of its listeners that tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.run_traces.listener import SegmentLines
from trt_responses.features.run_traces.trace import RECORDER

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.recorder = RECORDER
    server.listeners.append(SegmentLines())
