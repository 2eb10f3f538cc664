"""A server's way from its start to its end: starting, ready, draining, failed.

    starting ──> ready ──> draining ──> gone
       └───────────┴──────────┴───────> failed

A server that drains still takes new responses for its linger, since proxies learn late that they
should send no more. Behind it new responses are refused, and everything else goes on until the
server closes. Knows a clock; knows no signal, no engine and no HTTP.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Literal

from trt_responses.errors import ServerDraining, ServerStarting

State = Literal["starting", "ready", "draining", "failed"]


class Lifecycle:
    """The state of a server, and which requests it takes in that state."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.state: State = "starting"
        self.reason: str | None = "the server has not been started"
        """What it does now, or why it is in this state; None when it is ready."""
        self._clock_s = clock_s
        self._since_s = clock_s()
        self._refuses_from_s = math.inf
        self._closed = False
        self.open = False
        """Whether it is ready and not closed, so that no check raises."""
        self._streams = True
        self.was_ready = False
        """Whether this start has ended well."""

    @property
    def draining(self) -> bool:
        return self.state == "draining"

    @property
    def since_s(self) -> float:
        """Seconds since the state, or its reason, changed."""
        return self._clock_s() - self._since_s

    @property
    def linger_left_s(self) -> float:
        """Seconds for which a draining server still takes new responses."""
        return max(0.0, self._refuses_from_s - self._clock_s())

    def start(self) -> None:
        """Begin a start, perhaps another one: a program may live on and serve again."""
        self._refuses_from_s, self._closed, self._streams = math.inf, False, True
        self.was_ready = False
        self._enter("starting", "it has just begun")

    def step(self, reason: str) -> None:
        """Note the step of the start that is made now. A drain that has begun meanwhile stays
        one."""
        if self.state == "starting":
            self._enter("starting", reason)

    def ready(self) -> None:
        self.was_ready = True
        if self.state == "starting":
            self._enter("ready", None)

    def drain(self, linger_s: float) -> None:
        """Begin to drain. Called again it can only shorten the linger."""
        if self.state == "failed":
            return
        if not self.draining:
            linger_s = 0.0 if self.state == "starting" else linger_s
            self._enter("draining", "the server is being stopped")
        self._refuses_from_s = min(self._refuses_from_s, self._clock_s() + linger_s)

    def fail(self, reason: str) -> None:
        if self.state != "failed":
            self._enter("failed", reason)
            self._refuses_from_s = self._clock_s()

    def end_streams(self) -> None:
        """End the streams that wait for what other servers make; all else is still answered."""
        self._streams = False

    def check_streams(self) -> None:
        """Raise when a stream may wait no longer for more events."""
        if not self._streams:
            raise ServerDraining(
                "The server is being stopped: read on from another one, after the last event."
            )

    def close(self) -> None:
        """Close: from now on only health and metrics are answered."""
        self._closed, self.open = True, False

    def check_open(self) -> None:
        """Raise when no request of the API can be answered."""
        if self.state == "starting":
            raise ServerStarting(
                f"The server is starting: {self.reason} for {self.since_s:.0f} s. Try again soon."
            )
        if self._closed:
            raise ServerDraining("The server is being stopped: try again.")

    def check_takes_work(self) -> None:
        """Raise when no new response is begun."""
        self.check_open()
        if self.state == "draining" and not self.linger_left_s:
            raise ServerDraining(
                "The server is being stopped and begins no new response: try again."
            )

    def _enter(self, state: State, reason: str | None) -> None:
        self.state, self.reason = state, reason
        self.open = state == "ready" and not self._closed
        self._since_s = self._clock_s()
