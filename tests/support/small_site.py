"""A web site on loopback that answers as a test says, hostile answers among them."""

from __future__ import annotations

import asyncio
import zlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.support.turns import turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    Writes = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Asked(NamedTuple):
    """A request that has come."""

    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    method: str = "GET"
    body: bytes = b""


class Page(NamedTuple):
    """An answer. `writes` is for what no list of bytes can say: an endless body, a slow one."""

    body: bytes = b""
    content_type: str = "text/html; charset=utf-8"
    status: int = 200
    headers: tuple[str, ...] = ()
    writes: Writes | None = None


class Site:
    """`pages` by path, to be changed at any time; `asked` has the requests."""

    def __init__(self, pages: Mapping[str, Page | Callable[[Asked], Page]]) -> None:
        self.pages = dict(pages)
        self.asked: list[Asked] = []
        self.port = 0

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            await self._write(await _parsed(head, reader), writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left, as it may
        finally:
            writer.close()

    async def _write(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        self.asked.append(asked)
        page = self.pages.get(asked.path, Page(b"nothing here", status=404))
        page = page if isinstance(page, Page) else page(asked)
        head_lines = [f"HTTP/1.1 {page.status} Status", f"Content-Type: {page.content_type}"]
        head_lines += [*page.headers, "Connection: close"]
        if page.writes is None:
            head_lines.append(f"Content-Length: {len(page.body)}")
        writer.write("\r\n".join([*head_lines, "", ""]).encode() + page.body)
        await writer.drain()
        if page.writes is not None:
            await page.writes(writer)


async def _parsed(head: str, reader: asyncio.StreamReader) -> Asked:
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    at = urlsplit(target)
    return Asked(at.path, parse_qs(at.query), headers, method, body)


@asynccontextmanager
async def site_of(
    pages: Mapping[str, Page | Callable[[Asked], Page]], host: str = "127.0.0.1"
) -> AsyncIterator[Site]:
    site = Site(pages)
    server = await asyncio.start_server(site.answer, host, 0, limit=1 << 20)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()


def redirect(target: str, status: int = 302) -> Page:
    return Page(status=status, headers=(f"Location: {target}",))


def endless_gzip() -> Page:
    """Zeros without end, a thousandth of that on the wire."""

    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    head = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)

    async def writes(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(block)
            await writer.drain()
            await turn()

    return Page(headers=("Content-Encoding: gzip",), writes=writes)


def drip(text: bytes = b"x") -> Page:
    """A byte now and then, for ever."""

    async def writes(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(text)
            await writer.drain()
            await asyncio.sleep(0.02)  # slept: a site that is slow

    return Page(writes=writes)
