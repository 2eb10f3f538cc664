"""HTTP/1.1 connections: uvicorn's protocol, changed where it would fail our clients.

Bytes that are no HTTP get the same kind of error as everything else, and not plain text without a
request id, and never in the middle of a reply. Headers do not grow without end. A request that
offers an upgrade is answered as if it did not: httptools drops its body, and Java's client, for
one, offers HTTP/2 with each first request. One for a WebSocket passes where the app speaks that,
and gets a 426 elsewhere, at which coding agents go on over HTTP at once; anything else makes them
try again for seconds. A client that
leaves is noticed although another of its requests waits behind the one that is answered, and a
silent one is let go (`silence`).
Knows connections; knows no app.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import httptools
import orjson

from trt_responses.errors import ApiError, InvalidRequest, error_body
from trt_responses.features.connections.backlog import Backlog
from trt_responses.features.connections.silence import PIECE_BYTES, Clock, TimedProtocol
from trt_responses.features.connections.turns import Turns

AT_ONCE = 16
"""Requests that are accepted from a client which does not wait for its replies."""
HEAD = (
    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n"
    "x-request-id: {request_id}\r\nopenai-processing-ms: 0\r\ncache-control: no-store\r\n"
    "connection: close\r\n{more}\r\n"
)
UPGRADE_REQUIRED = 426
MORE = {UPGRADE_REQUIRED: "upgrade: HTTP/1.1\r\n"}
"""Further header lines of replies, by status: a 426 names the protocol that is spoken here."""
PHRASES = {
    400: "400 Bad Request",
    408: "408 Request Timeout",
    UPGRADE_REQUIRED: "426 Upgrade Required",
    431: "431 Request Header Fields Too Large",
}
NO_HTTP = InvalidRequest(
    "The bytes that came are no HTTP/1.1 request: expected a request line such as "
    "'POST /v1/responses HTTP/1.1', headers, and a body of the length that they name.",
    status=400,
    code="invalid_http",
)
NO_WEBSOCKET = InvalidRequest(
    "This server speaks no WebSocket here: send the request over HTTP, with `stream: true` for "
    "events.",
    status=UPGRADE_REQUIRED,
    code="websocket_not_supported",
)


class Protocol(TimedProtocol):
    """One connection. uvicorn makes it, so the function `protocol` sets its class attributes."""

    mint: Callable[[str], str]
    max_header_bytes: int
    socket_path: bytes | None
    """The path at which the app speaks WebSocket; None if it does not."""
    backlog: Backlog
    """The connections that wait behind this one."""

    _head_bytes = 0
    """The bytes of the head that is being read, or of what has come since the last one."""
    _fault: ApiError = NO_HTTP
    """The fault for which reading was given up."""
    _head: bytes | None = None
    """The head of a request that offers an upgrade, without the offer, to be read again."""
    _read = 0
    """The bytes that had been read when the offer ended the reading."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.backlog.accept(
            partial(
                type(self),
                config=self.config,
                server_state=self.server_state,
                app_state=self.app_state,
            )
        )

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        for _ in range(AT_ONCE):
            if self._head is None:
                break
            data = self._head + data[self._read :]
            self._head, self.parser = None, _parser(self)
            super().data_received(data)
        if self.transport.is_closing():
            return
        if self._head is not None:
            self._refuse(NO_HTTP)
        elif self._head_bytes > self.max_header_bytes:
            self._refuse(_too_large(self.max_header_bytes))

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        if self._head_size() > self.max_header_bytes:
            self._fault = _too_large(self.max_header_bytes)
            raise ValueError  # ends the reading: httptools hands it to `send_400_response`
        self._take_host_of_url()
        if self.parser.should_upgrade():
            if self._get_upgrade() == b"websocket":
                self._take_upgrade()
                return
            self._head = self._head_without_offer()
            return
        super().on_headers_complete()
        if 0 < len(self.pipeline) < AT_ONCE:
            self.flow.resume_reading()  # or the client's end would go unnoticed

    def _take_upgrade(self) -> None:
        """Let a WebSocket begin when the head has been read, or refuse it."""
        idle = self.answered is None or self.answered.response_complete
        path, method = self.url.partition(b"?")[0], self.parser.get_method()
        if idle and path == self.socket_path and method == b"GET":
            self.scope["method"] = "GET"  # all that uvicorn wants to know of it
        else:
            self._fault = NO_WEBSOCKET
            self._refuse(NO_WEBSOCKET)

    def _should_upgrade(self) -> bool:
        return self._fault is not NO_WEBSOCKET and super()._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        self._timer.cancel()  # the connection has another protocol from now on
        super().handle_websocket_upgrade()

    def _head_size(self) -> int:
        """The bytes of the head that has come whole, which may have been in one piece with
        others."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _take_host_of_url(self) -> None:
        """Take the host of `GET http://host/path`, which counts before the header's (RFC 9112,
        3.2.2)."""
        scheme, found, rest = self.url.partition(b"://")
        if found and scheme.isalpha():
            host = re.split(rb"[/?#]", rest, maxsplit=1)[0]
            self.headers[:] = [
                (name, host if name == b"host" else value) for name, value in self.headers
            ]

    def _head_without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % each for each in self.headers if each[0] != b"upgrade"]
        return b"\r\n".join((*lines, b"", b""))

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._head is None and self._fault is not NO_WEBSOCKET:
            super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Note where httptools has stopped. uvicorn calls this, with httptools' error in flight."""
        self._read = getattr(sys.exception(), "args", (0,))[0]

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered; uvicorn tells only the one that came last."""
        super().connection_lost(exc)
        self.pipeline.clear()
        cycle = self.answered
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._fault)

    def refuse_slow(self) -> None:
        self._refuse(_too_slow(self.read_timeout_s))

    def _refuse(self, error: ApiError) -> None:
        """Reply with an error and close, unless a reply to what is read has begun: then only
        close."""
        cycle = self.answered
        begun = cycle is not None and cycle.response_started
        if cycle is not None and cycle.response_complete:
            begun = self.part == "body"
        if not self.pipeline and not begun:
            body = orjson.dumps({"error": error_body(error)})
            status = PHRASES[error.status]
            head = HEAD.format(
                status=status,
                length=len(body),
                request_id=self.mint("req"),
                more=MORE.get(error.status, ""),
            )
            self.transport.write(head.encode() + body)
        self.transport.close()


def protocol(
    mint: Callable[[str], str],
    *,
    max_header_bytes: int,
    read_timeout_s: float,
    clock: Clock | None = None,
    socket_path: str | None = None,
    backlog: Backlog | None = None,
) -> type[Protocol]:
    """A class to hand to uvicorn as `http`. `mint` makes request ids; without a `clock` the time is
    the event loop's. A WebSocket may begin at `socket_path`."""
    bounds = {"max_header_bytes": max_header_bytes, "read_timeout_s": read_timeout_s}
    path = socket_path.encode() if socket_path else None
    attributes = {
        "mint": staticmethod(mint),
        "clock": clock,
        "socket_path": path,
        "turns": Turns(),
        "backlog": backlog or Backlog(),
    }
    return type("Protocol", (Protocol,), attributes | bounds)


def _parser(protocol: Protocol) -> httptools.HttpRequestParser:
    """A parser as uvicorn makes it: bytes behind a connection's last request are no error of it."""
    parser = httptools.HttpRequestParser(protocol)
    with suppress(AttributeError):  # httptools before 0.6.3
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _too_large(at_most: int) -> ApiError:
    return InvalidRequest(
        f"The request's headers are larger than {at_most} bytes.",
        status=431,
        code="headers_too_large",
    )


def _too_slow(within_s: float) -> ApiError:
    return InvalidRequest(
        f"The request came too slowly: its head, and each {PIECE_BYTES} bytes of its body or the "
        f"rest, have to come within {within_s:g} s.",
        status=408,
        code="request_timeout",
    )
