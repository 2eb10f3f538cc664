"""Runs wait for an engine that went away, and go on when it is back."""

from __future__ import annotations

import time

from trt_responses.features.recovery.recovery import Recovery
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    if wait_s := server.settings.engine_pause_s:
        server.new_recovery = lambda engine: Recovery(
            engine, wait_s=wait_s, clock_s=time.monotonic, sleep=server.sleep
        )
