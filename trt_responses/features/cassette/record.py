"""Passes requests to an upstream, its replies through, and keeps both."""

from __future__ import annotations

import asyncio
import codecs
import http.client
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from trt_responses.errors import ApiError, UsageError, root_cause
from trt_responses.features.cassette.exchanges import (
    Cassette,
    Exchange,
    Reply,
    Request,
    parsed,
)
from trt_responses.features.cassette.layer import Sent, start
from trt_responses.settings.values import http_url

if TYPE_CHECKING:
    from starlette.types import Send

logger = logging.getLogger(__name__)

UPSTREAM_S = 600.0
"""Seconds of the upstream's silence after which it is given up."""
PIECE_BYTES = 65_536
OF_A_CONNECTION = frozenset(
    ("connection", "content-length", "host", "keep-alive", "transfer-encoding", "accept-encoding")
)
GONE = (OSError, http.client.HTTPException)


class Head(NamedTuple):
    """The head of a reply."""

    status: int
    headers: Mapping[str, str]


Put = Callable[[Head | bytes | Exception | None], object]


class Upstream:
    """Another server. Each request has a connection and a thread of its own."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(http_url(url))
        except ValueError:
            raise UsageError(
                f"--record {url}: expected a URL such as https://api.openai.com/v1."
            ) from None
        self._place = parts.hostname or "", parts.port
        secure = parts.scheme == "https"
        self._connection = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        self.name = parts.netloc

    def begin(self, sent: Sent) -> asyncio.Queue[Head | bytes | Exception | None]:
        """The reply: its head, its bytes, and None, or the error that ended it."""
        loop, found = asyncio.get_running_loop(), asyncio.Queue[Head | bytes | Exception | None]()

        def put(part: Head | bytes | Exception | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(found.put_nowait, part)

        threading.Thread(target=self._exchange, args=(sent, put), daemon=True).start()
        return found

    def _exchange(self, sent: Sent, put: Put) -> None:
        connection = self._connection(*self._place, timeout=UPSTREAM_S)
        headers = {name: each for name, each in sent.headers if name not in OF_A_CONNECTION}
        try:
            connection.request(sent.method, self._prefix + sent.path, sent.body or None, headers)
            reply = connection.getresponse()
            put(Head(reply.status, {name.lower(): each for name, each in reply.getheaders()}))
            while piece := reply.read1(PIECE_BYTES):
                put(piece)
            put(http.client.IncompleteRead(b"") if reply.length else None)
        except GONE as error:
            put(error)
        finally:
            connection.close()


class Records:
    """The answers of a server that records."""

    def __init__(self, upstream: Upstream, cassette: Cassette) -> None:
        self._upstream = upstream
        self._cassette = cassette

    async def answer(self, sent: Sent, send: Send) -> None:
        began = time.monotonic()
        parts = self._upstream.begin(sent)
        head = await parts.get()
        if not isinstance(head, Head):
            why = root_cause(head) if isinstance(head, Exception) else "it closed the connection"
            message = f"The upstream {self._upstream.name} does not answer: {why}."
            raise ApiError(message, status=502)
        await start(send, head.status, head.headers)
        pieces, decoder = [], codecs.getincrementaldecoder("utf-8")("surrogateescape")
        while isinstance(part := await parts.get(), bytes):
            pieces.append((time.monotonic() - began, decoder.decode(part)))
            await send({"type": "http.response.body", "body": part, "more_body": True})
        pieces.append((time.monotonic() - began, decoder.decode(b"", final=True)))
        self._keep(sent, Reply(head.status, head.headers, pieces, part is None))
        if part is not None:
            logger.warning("upstream %s broke the reply to %s", self._upstream.name, sent.path)
            raise ConnectionAbortedError("cut by the upstream")
        await send({"type": "http.response.body", "body": b""})

    def _keep(self, sent: Sent, reply: Reply) -> None:
        request = Request(sent.method, sent.path, parsed(sent.text))
        try:
            self._cassette.add(sent.cleaner().exchange(Exchange(request, reply)))
        except (OSError, RecursionError) as fault:
            logger.error("cannot write to the cassette: %s", root_cause(fault))
