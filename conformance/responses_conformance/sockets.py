"""A WebSocket at `/responses`, in text frames (RFC 6455); its frames are kept as an exchange.

`python -m responses_conformance.sockets URL FRAME …` sends frames, and prints the replies to each.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

from responses_conformance.client import WEBSOCKET, Exchange, Json, Link, Server

ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Socket:
    """A connection that the server has upgraded, if the status of its exchange is 101."""

    def __init__(self, link: Link) -> None:
        self.exchange = Exchange(WEBSOCKET, "/responses", b"")
        self._patience_s = link.patience_s
        self._socket, self._file = link.upgraded(self.exchange)

    def send(self, frame: Json | bytes) -> None:
        """Send one text frame."""
        raw = json.dumps(frame).encode() if isinstance(frame, dict) else frame
        self.exchange.body = b"\n".join(filter(None, (self.exchange.body, raw)))
        self._send(TEXT, raw)

    def create(self, body: Json) -> list[Json]:
        """The events of one response, or one error."""
        self.send({"type": "response.create", **body})
        return list(self.events())

    def events(self) -> Iterator[Json]:
        """The events up to the next terminal one."""
        end_s = time.monotonic() + self._patience_s
        while time.monotonic() < end_s:
            frame = self._text()
            self.exchange.reply += frame + b"\n\n"
            event = json.loads(frame)
            yield event
            if event["type"] in ENDS:
                return
        raise TimeoutError(f"the response has not ended within {self._patience_s:g} s")

    def _text(self) -> bytes:
        """The next message; control frames between are answered."""
        text = b""
        while True:
            code, length = self._file.read(1), self._file.read(1)
            size = length[0] & 127 if length else 0
            if size > 125:
                size = int.from_bytes(self._file.read(2 if size == 126 else 8))
            payload = self._file.read(size)
            kind = code[0] & 15 if code else CLOSE
            if kind == CLOSE:
                raise ConnectionError(f"the server closed the socket: {payload[:80]!r}")
            if kind == BINARY:
                raise ConnectionError("the server sent a binary frame")
            if kind == PING:
                self._send(PONG, payload)
            elif kind != PONG:
                text += payload
                if code[0] & 128:
                    return text

    def _send(self, kind: int, payload: bytes) -> None:
        size, mask = len(payload), os.urandom(4)
        length = bytes([128 | size]) if size < 126 else struct.pack(">BQ", 255, size)
        if 125 < size < 65_536:
            length = struct.pack(">BH", 254, size)
        masked = bytes(byte ^ key for byte, key in zip(payload, cycle(mask), strict=False))
        self._socket.sendall(bytes([128 | kind]) + length + mask + masked)


@contextmanager
def connected(server: Server) -> Iterator[Socket]:
    """A connection; closed at the end, whatever runs on it."""
    with server.link() as link:
        yield Socket(link)


def main(url: str, *frames: str) -> None:
    with connected(Server(url, os.environ.get("OPENAI_API_KEY", ""))) as socket:
        for frame in frames:
            socket.send(frame.encode())
            for event in socket.events():
                print(json.dumps(event))


if __name__ == "__main__":
    main(*sys.argv[1:])
