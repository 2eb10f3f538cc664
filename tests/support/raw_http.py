"""HTTP as bytes on a socket: what a client library would never send, or never show."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson

from tests.support.asgi import asked
from tests.support.turns import turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.serving import Address


class Wire:
    """One connection, as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def to(cls, address: Address) -> AsyncIterator[Wire]:
        wire = cls(*await asyncio.open_connection(address.host, address.port))
        try:
            yield wire
        finally:
            wire._writer.close()

    def ask(self, *, head: str = "", **fields: Any) -> None:
        body = orjson.dumps(asked(**fields))
        self.send(
            f"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\n{head}"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait while what was sent is more than a buffer holds."""
        await self._writer.drain()

    def receive_slowly(self, buffer_bytes: int) -> None:
        """Let the kernel hold no more of what has come and was not read."""
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)

    async def is_open_and_silent(self) -> bool:
        """Whether nothing has come that was not read, the end not either."""
        reading = asyncio.create_task(self.reader.read(1))
        await turn()
        found = not reading.done()
        reading.cancel()
        await asyncio.wait((reading,))
        return found

    async def status(self) -> int:
        """The status of the next reply; its headers are read too."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        return int(head.split()[1])

    async def chunks(self) -> bytes:
        """The body of a chunked reply."""
        return await self.rest(await self.reader.readline())

    async def rest(self, line: bytes) -> bytes:
        """The same, when its first line has been read."""
        body = b""
        while size := int(line, 16):
            body += await self.reader.readexactly(size)
            await self.reader.readline()
            line = await self.reader.readline()
        await self.reader.readline()
        return body

    def close(self) -> None:
        """Politely: what a client does that has lost interest."""
        self._writer.close()

    def reset(self) -> None:
        """Rudely: what a client does that was killed."""
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


async def news_has_come(address: Address) -> None:
    """A later connection has been answered, so what the earlier one sent has been seen."""
    async with Wire.to(address) as other:
        other.send(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await other.status() == 200


HEADER_BYTES = 2_000
ASK = b"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\n"


async def refused(wire: Wire) -> tuple[int, str]:
    """The status and the code of the one reply, behind which the connection is closed."""
    head, _, body = (await wire.reader.read()).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert headers["x-request-id"].startswith("req_")
    assert headers["cache-control"] == "no-store"
    assert "openai-processing-ms" in headers
    assert int(headers["content-length"]) == len(body)
    error = orjson.loads(body)["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    return int(status.split()[1]), error["code"]


OFFER = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
"""As Java's client makes it with the first request of each connection."""


def ask(body: bytes, more: bytes, *, chunked: bool) -> tuple[bytes, bytes]:
    """Head and body of a request."""
    head = ASK + b"content-type: application/json\r\n" + more
    if chunked:
        framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        return head + b"transfer-encoding: chunked\r\n\r\n", framed
    return head + b"content-length: %d\r\n\r\n" % len(body), body
