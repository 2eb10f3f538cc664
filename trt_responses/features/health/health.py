"""How a server is: the one function behind every health route.

Knows the server's way, its engine and the line before it; knows no HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from trt_responses.engine import Engine
from trt_responses.frozen import dataclass
from trt_responses.health.lifecycle import Lifecycle, State
from trt_responses.run.admission import Admission


@dataclass(frozen=True, slots=True)
class Report:
    """The state of a server. While `live`, leave the process alone; while `ready`, send it work."""

    state: State
    live: bool
    ready: bool
    reason: str | None
    """The reason why it is not ready."""
    since_s: float
    """Seconds since it came into this state, or to this step of its start."""
    engine_alive: bool
    engine_ready: bool
    last_progress_s: float
    """Seconds since the engine made its last step, or answered at all."""
    cache_use: float | None
    """The share of the engine's KV cache that running responses hold, where it tells."""
    engine_queued: int | None
    """The requests that wait in the engine's own queue, where it tells."""
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Health:
    """Makes a `Report` of a server's parts. Neither load nor a drain makes a server less alive."""

    lifecycle: Lifecycle
    engine: Engine
    admission: Admission
    stall_of: Callable[[int], str | None]
    """Gives the words for one, by the time of the engine's last step."""

    def __call__(self) -> Report:
        life, engine = self.lifecycle, self.engine.health()
        lost = life.state != "starting" and not engine.alive
        state: State = "failed" if lost else life.state
        reason = life.reason or engine.reason
        stall = self.stall_of(engine.last_progress_ns)
        if state == "ready" and stall is not None:
            reason = stall
        ready = state == "ready" and engine.ready and stall is None
        return Report(
            state=state,
            live=state != "failed",
            ready=ready,
            reason=None if ready else reason or "the engine is not ready",
            since_s=life.since_s,
            engine_alive=engine.alive,
            engine_ready=engine.ready,
            cache_use=engine.cache_use,
            engine_queued=engine.queued,
            last_progress_s=max(0, time.monotonic_ns() - engine.last_progress_ns) / 1e9,
            running=self.admission.running,
            waiting=self.admission.waiting,
        )
