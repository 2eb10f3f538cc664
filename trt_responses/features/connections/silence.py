"""Time limits for clients that owe a request and say nothing, or send more than is wanted.

A connection is let go when it is the client's turn and `read_timeout_s` bring neither the first
byte of a request, nor the end of a head that has begun, nor a piece or the end of a body. It has
one timer for all that, which nothing moves: when it is due, it looks. What a client still sends
behind its reply is read and dropped for a while. Knows uvicorn's connections; the words for a
client that is too slow are another's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, Protocol

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trt_responses.features.connections.head import hold_head
from trt_responses.features.connections.turns import Turns

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    Part = Literal["nothing", "head", "body"]

PIECE_BYTES = 65_536
"""Bytes of a body that must come in each `read_timeout_s`, unless the body ends: a drip is no
upload."""
DROPPED_BYTES = 64 * 1024 * 1024
"""Bytes of a body that are read and dropped when its reply has gone. Many clients read only when
they have sent all, and a connection that is closed with bytes unread may take its reply along."""
CLOCK_S = 0.001
"""The smallest step of uvloop's clock, in seconds."""


class Timer(Protocol):
    """A timer of an event loop."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The clock and the timers of an event loop."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer: ...


class Flow(FlowControl):
    """uvicorn's flow control, which also knows when reading was resumed: a client is not to blame
    for the server's pause. It holds no connection, or each would stay until a collection."""

    def __init__(self, transport: asyncio.Transport, now: Callable[[], float]) -> None:
        super().__init__(transport)
        self._now = now
        self.resumed = 0.0

    def resume_reading(self) -> None:
        if self.read_paused:
            self.resumed = self._now()
        super().resume_reading()


class TimedProtocol(HttpToolsProtocol, ABC):
    """One connection that closes itself when its client has been silent for too long."""

    read_timeout_s: float
    clock: Clock | None = None
    """The clock of the timers; None: the event loop's."""
    turns: Turns
    """The order in which the requests of all connections start."""

    answered: RequestResponseCycle | None = None
    """The request whose reply is being made, or was made last: others may have come behind it."""
    part: Part = "nothing"
    """The part of a request that is being read."""

    _clock: Clock
    _since: float
    """The time since which the client has been silent, or has dripped."""
    _piece = 0
    """Bytes of the body since then."""
    _last = False
    """Whether the client wants no further reply: the connection ends with this one and its
    request."""
    _unsent: float = math.inf
    """Bytes that a closing connection still had to send at the last look."""
    _timer: Timer

    @abstractmethod
    def refuse_slow(self) -> None:
        """Called when a request that has begun is too slow."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._clock = self.clock or self.loop
        self.flow: Flow = Flow(transport, self._clock.time)
        self._count_anew()
        self._timer = self._clock.call_later(self.read_timeout_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._timer.cancel()

    def _count_anew(self) -> None:
        self._since = self._clock.time()

    def _look(self) -> None:
        left_s = self.read_timeout_s
        if self.transport.is_closing():
            self._end_closing()
        elif self._awaits_client():
            left_s += max(self._since, self.flow.resumed) - self._clock.time()
            if left_s < CLOCK_S:
                left_s = self.read_timeout_s
                self._let_go()
        self._timer = self._clock.call_later(left_s, self._look)

    def _awaits_client(self) -> bool:
        """Whether it is the client's turn: nothing is being answered, or its request is not
        whole."""
        cycle = self.answered
        if cycle is None or cycle.response_complete:
            return True
        coming = self.part == "body" and cycle is self.cycle
        return coming and not (cycle.response_started or self.flow.read_paused)

    def _let_go(self) -> None:
        if self.part == "nothing":
            self.transport.close()
        else:
            self.refuse_slow()

    def _end_closing(self) -> None:
        """Abort a closing connection whose client has read nothing since the last look: to close is
        to wait until everything is sent."""
        unsent = self.transport.get_write_buffer_size()
        if unsent >= self._unsent:
            self.transport.abort()
        self._unsent = unsent

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.part = "head"
        self._count_anew()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.headers = []  # the request has its own: what stands behind a body belongs to none
        self.part, self._piece = "body", 0
        hold_head(self.cycle, self.loop)
        self._count_anew()
        if not self.cycle.keep_alive:
            self._last = self.cycle.keep_alive = True  # or uvicorn would close with the reply

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.answered = cycle
        super()._start_asgi_task(cycle, self.turns.app(app))

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._piece += len(body)
        if self.cycle.response_complete:
            if self._piece > DROPPED_BYTES:
                self.transport.close()
        elif self._piece >= PIECE_BYTES:
            self._piece = 0
            self._count_anew()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.part = "nothing"
        if self._last:
            self.cycle.keep_alive = False
            if self.cycle.response_complete:
                self.transport.close()

    def on_response_complete(self) -> None:
        self._count_anew()
        super().on_response_complete()
