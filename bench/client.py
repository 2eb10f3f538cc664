"""Many streams at once, as cheaply as Python can: `python -m bench.client PORT STREAMS ROUNDS`.

Raw sockets behind one epoll; it counts bytes and events and looks at nothing else, so that on two
cores the server is what is busy. Each connection asks again when its answer is whole.
"""

from __future__ import annotations

import json
import select
import socket
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from bench.asks import BODY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LAST = b"data: [DONE]\n\n\r\n0\r\n\r\n"
"""The end of a reply: the stream's last line, the end of its chunk, and the last chunk."""


def request_of(body: bytes, path: bytes = b"/v1/responses") -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (path, len(body), body)
    )


@dataclass(slots=True)
class Counts:
    """What came of all streams together."""

    replies: int = 0
    refused: int = 0
    events: int = 0
    size_bytes: int = 0


class Stream:
    """One connection: so many requests, one after the other. `look` is shown what comes."""

    __slots__ = ("_counts", "_left", "_look", "_request", "_tail", "connection")

    def __init__(
        self,
        port: int,
        rounds: int,
        counts: Counts,
        request: bytes = request_of(BODY),
        look: Callable[[bytes], object] = len,
    ) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = rounds
        self._counts = counts
        self._request = request
        self._look = look
        self._tail = b""

    def ask(self) -> bool:
        """The next request; False when there is none left to make."""
        if not self._left:
            self.connection.close()
            return False
        self._left -= 1
        self._tail = b""
        self.connection.sendall(self._request)
        return True

    def read(self) -> bool:
        """What has come; False when the reply is whole, or cannot become so."""
        data = self.connection.recv(262_144)
        self._look(data)
        counts = self._counts
        if not self._tail and not data.startswith(b"HTTP/1.1 200"):
            counts.refused += 1
            self._left = 0
            return False
        counts.size_bytes += len(data)
        counts.events += data.count(b"\n\n") + (self._tail[-1:] == b"\n" == data[:1])
        self._tail = (
            (self._tail + data)[-len(LAST) :] if len(data) < len(LAST) else data[-len(LAST) :]
        )
        if data and self._tail != LAST:
            return True
        counts.replies += bool(data)
        return False


def run(port: int, streams: int, rounds: int) -> Counts:
    counts = Counts()
    follow(Stream(port, rounds, counts) for _ in range(streams))
    return counts


def follow(streams: Iterable[Stream]) -> None:
    """Ask on all connections, until none has a request left to make."""
    poll = select.epoll()
    reading = {stream.connection.fileno(): stream for stream in streams}
    for number, stream in reading.items():
        poll.register(number, select.EPOLLIN)
        stream.ask()
    while reading:
        for number, _ in poll.poll():
            stream = reading[number]
            if not stream.read() and not stream.ask():
                del reading[number]


if __name__ == "__main__":
    print(json.dumps(asdict(run(*map(int, sys.argv[1:])))))
