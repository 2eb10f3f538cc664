"""Raw WebSocket frames that no client library would send, and a client process that floods with
them.

`python -m tests.support.floods PORT NAME SECONDS` floods, connecting anew when it is closed, and
says on stdout that it begins.
"""

from __future__ import annotations

import itertools
import json
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
UPGRADE = (
    b"GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: Upgrade\r\n"
    b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
HELLO = {"type": "response.create", "model": "demo", "input": "Hello", "store": False}
AT_ONCE_BYTES = 512 * 1024


def frame(opcode: int, data: bytes = b"", *, fin: bool = True, announced: int = 0) -> bytes:
    """A masked frame, which may announce more than it has."""
    size = announced or len(data)
    head = bytes([(128 if fin else 0) | opcode])
    if size < 126:
        head += bytes([128 | size])
    elif size < 1 << 16:
        head += bytes([128 | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([128 | 127]) + size.to_bytes(8, "big")
    return head + bytes(4) + data


def text(**fields: object) -> bytes:
    return frame(TEXT, json.dumps(HELLO | fields).encode())


def _again(data: bytes, first: bytes = b"") -> Callable[[], Iterator[bytes]]:
    def made() -> Iterator[bytes]:
        many = data * (AT_ONCE_BYTES // len(data) + 1)
        return itertools.chain((first + many,), itertools.repeat(many))

    return made


def _lanes() -> Iterator[bytes]:
    for start in itertools.count(step=1000):
        yield b"".join(text(stream_id=f"{start + n}") for n in range(1000))


FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "empty continuations": _again(frame(CONT, fin=False), first=frame(TEXT, fin=False)),
    "pings": _again(frame(PING)),
    "long pings": _again(frame(PING, b"x" * 125)),
    "pongs": _again(frame(PONG)),
    "empty texts": _again(frame(TEXT)),
    "no JSON": _again(frame(TEXT, b"{")),
    "20,000 requests": lambda: _again(text(), first=text() * 20_000)(),
    "new lanes": _lanes,
    "unknown models": _again(text(model="other")),
    "steering": _again(frame(TEXT, b'{"type": "response.steer"}')),
    "large messages": lambda: _again(text(input="\u0e01" * 650_000))(),
    "many values": lambda: _again(text(input=[[]] * 45_000))(),
    "large and no JSON": lambda: _again(frame(TEXT, b"[" * (4 << 20)))(),
    "a large frame that trickles": lambda: itertools.chain(
        (frame(TEXT, announced=4 << 20),), itertools.repeat(b"x")
    ),
    "too large a frame": _again(b"x", first=frame(TEXT, announced=1 << 40)),
    "no such close code": _again(frame(CLOSE, (999).to_bytes(2, "big"))),
    "no UTF-8": _again(frame(TEXT, b"\xff{")),
    "not masked": _again(b"\x81\x02{}"),
    "reserved bits": _again(b"\xc1\x82" + bytes(4) + b"{}"),
    "continuations of nothing": _again(frame(CONT)),
}


def _flood(port: int, name: str, until_s: float) -> None:
    """Send as fast as the server takes it, and read what it answers."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(UPGRADE)
        threading.Thread(target=_read, args=(client,), daemon=True).start()
        for data in FLOODS[name]():
            client.settimeout(until_s - time.monotonic())
            client.sendall(data)


def _read(client: socket.socket) -> None:
    with suppress(OSError):
        while client.recv(1 << 16):
            pass


def main(port: str, name: str, seconds: str) -> None:
    until_s = time.monotonic() + float(seconds)
    print("flooding", flush=True)
    while time.monotonic() < until_s:
        with suppress(OSError, ValueError):  # the server has closed, or time is up
            _flood(int(port), name, until_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
