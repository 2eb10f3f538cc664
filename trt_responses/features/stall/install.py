"""The watch over the engine's progress."""

from __future__ import annotations

import time

from trt_responses.features.stall.stall import StallWatch
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    watch = StallWatch(
        lambda: server.parts.engine.health(),
        lambda: server.parts.admission.running > server.paused,
        server.lifecycle,
        fail_begun=lambda error: server.runs.fail_begun(error),
        stall_s=server.settings.stall_s,
        pause_s=server.settings.engine_pause_s,
        clock_ns=time.monotonic_ns,
    )
    server.stall = watch.reason
    server.listeners.append(watch)
    server.each_look.append(watch.look)
