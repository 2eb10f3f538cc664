"""Many streams at once against one server: `python -m bench.servers.load`, its `Load` as JSON on
standard input, its `Outcome` on standard output.

Raw sockets behind one epoll: it counts frames and notes each first delta, so that on two cores
the servers are what is busy. It reads the CPU time of the server's processes itself, between two
moments that it sees.
"""

from __future__ import annotations

import json
import resource
import select
import socket
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from bench.timing import cpu_ns_of

if TYPE_CHECKING:
    from collections.abc import Sequence

LAST = b"\r\n0\r\n\r\n"
"""The last chunk of a reply, behind the end of the one before."""
FRAME = b"\ndata: "
"""In each frame once, and in no comment that keeps a silent stream alive."""
ACCEPTED_S = 0.2
"""Time for a server to accept all connections, before any is measured."""
WINDOW = (0.4, 0.9)
"""The part of a paced stream in which its tokens are counted."""


@dataclass(frozen=True, slots=True)
class Load:
    """So many connections, each with so many requests, one after the other."""

    port: int
    path: str
    body: str
    streams: int
    rounds: int
    pids: Sequence[int]
    first: str
    """What a first delta holds."""
    lasts_s: float = 0.0
    """How long a stream lasts that keeps its pace; 0 where there is none."""
    most_s: float = 60.0
    """When the load has not ended by then, the server hangs."""


@dataclass(slots=True)
class Outcome:
    """What came of all streams together."""

    replies: int = 0
    frames: int = 0
    fault: str | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """Of the server's processes; for a paced load within the window."""
    window_s: float = 0.0
    first_ms: list[float] = field(default_factory=list)


class Stream:
    """One connection and its requests."""

    __slots__ = ("_begun_s", "_left", "_load", "_outcome", "_request", "_tail", "connection")

    def __init__(self, load: Load, request: bytes, outcome: Outcome) -> None:
        self.connection = socket.create_connection(("127.0.0.1", load.port))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._load, self._request, self._outcome = load, request, outcome
        self._left = load.rounds
        self._begun_s: float | None = None
        self._tail = b""

    def ask(self) -> bool:
        """Send the next request; False when none is left."""
        if not self._left:
            self.connection.close()
            return False
        self._left -= 1
        self._tail = b""
        self._begun_s = time.perf_counter()
        self.connection.sendall(self._request)
        return True

    def read(self, first: bytes) -> bool:
        """Read what has come; False when the reply is whole, or cannot become so."""
        data = self.connection.recv(262_144)
        outcome, tail = self._outcome, self._tail
        if not tail and not data.startswith(b"HTTP/1.1 200"):
            outcome.fault = f"it answered {data[:80]!r}"
            return False
        outcome.frames += (tail[-len(FRAME) + 1 :] + data).count(FRAME)
        if self._begun_s is not None and first in data:
            outcome.first_ms.append(1000 * (time.perf_counter() - self._begun_s))
            self._begun_s = None
        self._tail = data[-len(LAST) :] if len(data) >= len(LAST) else (tail + data)[-len(LAST) :]
        if not data:
            outcome.fault = "it closed a connection in the middle of a reply"
            return False
        if self._tail == LAST:
            outcome.replies += 1
            return False
        return True


class Follower:
    """All streams of a load, until each has its replies."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.outcome = Outcome()
        self._poll = select.epoll()
        request = (
            f"POST {load.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"content-length: {len(load.body.encode())}\r\n\r\n{load.body}"
        ).encode()
        streams = [Stream(load, request, self.outcome) for _ in range(load.streams)]
        self._reading = {stream.connection.fileno(): stream for stream in streams}
        for number in self._reading:
            self._poll.register(number, select.EPOLLIN)

    def follow(self) -> Outcome:
        time.sleep(ACCEPTED_S)
        load, outcome = self._load, self.outcome
        before_s, begun_s = self._cpu_s(), time.perf_counter()
        for stream in self._reading.values():
            stream.ask()
        if load.lasts_s:
            start_s, end_s = (begun_s + load.lasts_s * part for part in WINDOW)
            self._read_until(start_s)
            before_s, start_s = self._cpu_s(), time.perf_counter()
            self._read_until(end_s)
            outcome.cpu_s, outcome.window_s = (
                self._cpu_s() - before_s,
                time.perf_counter() - start_s,
            )
        self._read_until(begun_s + load.most_s)
        outcome.wall_s = time.perf_counter() - begun_s
        if not load.lasts_s:
            outcome.cpu_s = self._cpu_s() - before_s
        if self._reading and outcome.fault is None:
            open_ones = f"{len(self._reading)} of {load.streams} streams"
            outcome.fault = f"{open_ones} had not ended after {load.most_s:g} s"
        return outcome

    def _read_until(self, end_s: float) -> None:
        """Read until a time, or until no stream has a reply to come."""
        reading, outcome, first = self._reading, self.outcome, self._load.first.encode()
        while reading and outcome.fault is None:
            left_s = end_s - time.perf_counter()
            if left_s <= 0:
                return
            for number, _ in self._poll.poll(left_s, len(reading)):
                stream = reading[number]
                if not stream.read(first) and (outcome.fault or not stream.ask()):
                    del reading[number]

    def _cpu_s(self) -> float:
        return sum(cpu_ns_of(pid, alone=True) for pid in self._load.pids) / 1e9


def main() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    load = Load(**json.loads(sys.stdin.read()))
    print(json.dumps(asdict(Follower(load).follow())))


if __name__ == "__main__":
    main()
