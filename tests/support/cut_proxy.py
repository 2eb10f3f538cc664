"""A TCP proxy whose connections a test can cut, and whose target it can replace."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class CutProxy:
    """Passes bytes between clients and `target`, a port of this machine."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Reset every connection."""
        for writer in self._open:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
            self._open.add(back)
            await asyncio.gather(_pass(reader, back), _pass(there, writer))
        for end in self._open & {writer}:
            end.transport.abort()


async def _pass(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            to.write(data)
            await to.drain()
    to.transport.abort()


@asynccontextmanager
async def cut_proxy(target: int) -> AsyncIterator[CutProxy]:
    proxy = CutProxy(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        await server.wait_closed()
