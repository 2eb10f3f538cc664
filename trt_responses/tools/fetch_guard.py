"""HTTP to URLs that a model or a client names: only to public addresses, and within limits.

A name is resolved once, all its addresses are judged, and the connection uses a judged one, so that
the address cannot change in between. No proxy, no cookies and no credentials. Needs the extra with
`httpx2`.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import httpcore2
import httpx2

from trt_responses.frozen import dataclass
from trt_responses.tasks import give_way
from trt_responses.tools.addresses import is_reachable, is_within

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from trt_responses.tools.addresses import Network

    Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
    """Returns all addresses of a host."""
    Permit = Callable[[httpx2.URL], str | None]
    """Returns why a URL, the first one or a redirect's, must not be fetched; None if it may."""

MAX_URL = 4096
PIECE_BYTES = 256 * 1024
"""Bytes decompressed at a time, so that other streams can proceed."""
_RESOLVERS = ThreadPoolExecutor(8, "resolver")
"""Threads of their own: a name whose server is silent holds one for many seconds."""
REDIRECTS = (301, 302, 303, 307, 308)
HEADERS = {
    "accept": "text/html,application/xhtml+xml,text/plain;q=0.9,*/*;q=0.5",
    "accept-encoding": "gzip, deflate",
    "user-agent": "Mozilla/5.0 (compatible; trt-responses)",
}


class Refused(httpx2.TransportError):
    """A URL must not be fetched, or its answer must not be read; the message is for the model."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The addresses and ports that may be connected to."""

    allowed: tuple[Network, ...] = ()
    """Private networks that may be reached, at any port."""
    ports: frozenset[int] | None = frozenset((80, 443))
    """Ports of public addresses: those of pages, so that a model reaches no other service. None:
    any port."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one document."""

    deadline_s: float = 20.0
    """From the first connection to the last byte, redirects included."""
    max_bytes: int = 4 * 1024 * 1024
    """Limit of the sent bytes, and of the decompressed bytes; a longer document is cut."""
    max_redirects: int = 5


class Document(NamedTuple):
    """A fetched document."""

    url: str
    """The final URL, after redirects."""
    content_type: str
    """The media type in lower case, without parameters."""
    charset: str | None
    body: bytes
    cut: bool
    """Whether the document was longer."""


@cache
def _tls() -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=False)


async def addresses_of(host: str, port: int) -> list[str]:
    """The addresses of a name from the system's resolver, which also accepts numeric spellings."""
    look = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    infos = await asyncio.get_running_loop().run_in_executor(_RESOLVERS, look)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in infos))


class _Backend(httpcore2.AsyncNetworkBackend):
    """Connects to judged addresses, and to no UNIX socket; TLS and `Host` still use the name."""

    def __init__(self, reach: Reach, resolve: Resolve) -> None:
        self._reach = reach
        self._resolve = resolve
        self._backend = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (the name is httpcore2's)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._resolve(host, port)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"the name {host} was not resolved in time") from None
        except (OSError, UnicodeError):
            raise httpcore2.ConnectError(f"the name {host} cannot be resolved") from None
        if not addresses or not all(is_reachable(a, self._reach.allowed) for a in addresses):
            raise Refused(f"{host} is not a public address, and the server does not reach others")
        if not self._opens(port, addresses):
            raise Refused(f"port {port} is not opened")
        fault: Exception = httpcore2.ConnectError(f"no address of {host} answers")
        for address in addresses[:4]:
            try:
                return await self._backend.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                fault = error
        raise fault

    def _opens(self, port: int, addresses: Sequence[str]) -> bool:
        ports, allowed = self._reach.ports, self._reach.allowed
        return ports is None or port in ports or all(is_within(a, allowed) for a in addresses)


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """A transport for `httpx2` clients. Create the client with `trust_env=False` and
    `follow_redirects=False`; each followed redirect is judged like any URL.

    Only a client of a single owner may set `keep_alive`."""

    def __init__(
        self, reach: Reach, *, resolve: Resolve = addresses_of, keep_alive: bool = False
    ) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=_tls(),
            max_connections=64,
            max_keepalive_connections=8 if keep_alive else 0,
            keepalive_expiry=5.0,
            network_backend=_Backend(reach, resolve),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if (fault := refusal(request.url)) is not None:
            raise Refused(fault)
        return await super().handle_async_request(request)


def refusal(url: httpx2.URL) -> str | None:
    """Why a URL must not be fetched, whatever its host; None if it may."""
    if url.scheme not in ("http", "https"):
        return "only http and https URLs are opened"
    if url.userinfo:
        return "a URL with a user name or a password is not opened"
    if not url.host:
        return "the URL names no host"
    if (url.port or 80) > 65535:
        return "the URL's port is larger than 65535"
    if len(str(url)) > MAX_URL:
        return f"the URL is longer than {MAX_URL} characters"
    return None


class Fetcher:
    """Fetches documents. The caller must `close` it."""

    def __init__(
        self, reach: Reach, bounds: Bounds | None = None, *, resolve: Resolve = addresses_of
    ) -> None:
        self.bounds = bounds or Bounds()
        self._transport = GuardedTransport(reach, resolve=resolve)

    async def get(
        self,
        url: str,
        *,
        is_wanted: Callable[[str], bool] = lambda _: True,
        permit: Permit = lambda _: None,
    ) -> Document:
        """The document at a URL. `is_wanted` judges its content type, `permit` each URL and
        redirect. Raises an `httpx2.HTTPError` or an `httpx2.InvalidURL` with a message for the
        model."""
        try:
            async with asyncio.timeout(self.bounds.deadline_s):
                return await self._follow(httpx2.URL(url), is_wanted, permit)
        except TimeoutError:
            seconds = f"{self.bounds.deadline_s:g} seconds"
            raise httpx2.ReadTimeout(f"it did not arrive within {seconds}") from None

    async def close(self) -> None:
        await self._transport.aclose()

    async def _follow(
        self, url: httpx2.URL, is_wanted: Callable[[str], bool], permit: Permit
    ) -> Document:
        for _ in range(self.bounds.max_redirects + 1):
            url = url.copy_with(fragment=None)
            if (fault := permit(url)) is not None:
                raise Refused(fault)
            request = httpx2.Request("GET", url, headers=HEADERS)
            response = await self._transport.handle_async_request(request)
            try:
                target = response.headers.get("location")
                if response.status_code in REDIRECTS and target is not None:
                    url = url.join(target)
                    continue
                return await self._read(url, response, is_wanted)
            finally:
                await response.aclose()
        raise Refused(f"it redirects more than {self.bounds.max_redirects} times")

    async def _read(
        self, url: httpx2.URL, response: httpx2.Response, is_wanted: Callable[[str], bool]
    ) -> Document:
        if response.status_code != 200:
            raise Refused(f"the site answered with status {response.status_code}")
        given = response.headers.get("content-type", "text/html")
        kind = given.partition(";")[0].strip().lower()
        if not is_wanted(kind):
            raise Refused(f"documents of the type '{kind:.64}' are not read")
        body, cut = await bounded(response, self.bounds.max_bytes)
        # The parser of a type takes the square of its length.
        charset = response.charset_encoding if len(given) < 1000 else None
        return Document(str(url), kind, charset, body, cut)


async def bounded(response: httpx2.Response, most: int) -> tuple[bytes, bool]:
    """The first bytes of a body, decompressed, and whether there are more."""
    inflate = _inflater(response.headers.get("content-encoding", "identity"))
    body, sent = bytearray(), 0
    async for raw in response.aiter_raw():
        sent += len(raw)
        while raw:
            piece, raw = inflate(raw) if inflate is not None else (raw, b"")
            body += piece
            if len(body) > most or sent > most:
                return bytes(body[:most]), True
            await give_way()
    return bytes(body), False


def _inflater(encoding: str) -> Callable[[bytes], tuple[bytes, bytes]] | None:
    """A function from compressed bytes to decompressed ones and the bytes still to process; None
    for no compression."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Refused(f"its encoding '{encoding:.32}' is not supported")
    state: list[zlib._Decompress] = []

    def inflate(data: bytes) -> tuple[bytes, bytes]:
        if not state:
            # A deflate stream has zlib's header, or none from some servers.
            bare = encoding == "deflate" and data[0] & 0x0F != 8
            state.append(zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS | 32))
        if state[0].eof:  # ignore bytes after the end
            return b"", b""
        try:
            piece = state[0].decompress(data, PIECE_BYTES)
        except zlib.error:
            raise Refused("its compressed bytes are damaged") from None
        return piece, state[0].unconsumed_tail

    return inflate
