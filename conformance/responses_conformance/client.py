"""HTTP as the judged server speaks it: every exchange is kept with its bytes, none is repeated."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from urllib.parse import urlsplit

Json = dict[str, Any]
WEBSOCKET = "WEBSOCKET"
"""The method of an exchange over a WebSocket, whose body is the frames that were sent."""
LIMITED_TRIES, LIMITED_S = 3, 20
"""How often a request is sent that gets a 429, and the longest pause between."""


@dataclass
class Exchange:
    """A request and what came back."""

    method: str
    path: str
    body: bytes | None
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    reply: bytes = b""
    has_key: bool = True
    hung_up: bool = False
    """The kit closed the connection before the reply's end."""

    @property
    def json(self) -> Any:
        """The JSON of the reply; None if it is something else."""
        try:
            return json.loads(self.reply)
        except ValueError:
            return None

    @property
    def error(self) -> Json:
        """The error object of the reply; empty if it has none."""
        found = self.json
        error = found.get("error") if isinstance(found, dict) else None
        return error if isinstance(error, dict) else {}


@dataclass(frozen=True)
class Event:
    """One event of a stream."""

    name: str | None
    """The field `event`."""
    data: str
    raw: bytes

    @property
    def json(self) -> Json:
        found = json.loads(self.data)
        if not isinstance(found, dict):
            raise ValueError(f"the data of an event is no object: {self.data:.80}")
        return found


class Stream:
    """A reply that is read event by event."""

    def __init__(self, exchange: Exchange, response: http.client.HTTPResponse, link: Link) -> None:
        self.exchange = exchange
        self.patience_s = link.patience_s
        self._response = response
        self._link = link

    def __iter__(self) -> Iterator[Event]:
        lines: list[bytes] = []
        end = time.monotonic() + self.patience_s
        for line in self._response:
            if time.monotonic() > end:
                raise TimeoutError(f"the stream has not ended within {self.patience_s:g} s")
            self.exchange.reply += line
            if line.strip():
                lines.append(line)
                continue
            if (event := _event(lines)) is not None:
                yield event
            lines = []
        if (event := _event(lines)) is not None:
            yield event

    def hang_up(self) -> None:
        """Close the connection, as a client does that is not interested any more."""
        self.exchange.hung_up = True
        self._response.close()
        self._link.close()


def _event(lines: list[bytes]) -> Event | None:
    """The event of these lines; None for a comment."""
    name, data = None, []
    for line in lines:
        key, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if key == "event":
            name = value
        elif key == "data":
            data.append(value)
    return Event(name, "\n".join(data), b"".join(lines)) if data else None


class Link:
    """One connection, which is opened by its first request."""

    def __init__(self, server: Server) -> None:
        kind: Any = http.client.HTTPConnection
        options: Json = {"timeout": server.patience_s}
        if server.secure:
            kind = http.client.HTTPSConnection
            options["context"] = ssl.create_default_context()
        self.server = server
        self.patience_s = server.patience_s
        self._connection: http.client.HTTPConnection = kind(server.host, server.port, **options)

    def send(
        self, method: str, path: str, body: Json | bytes | None = None, *, key: bool = True
    ) -> tuple[Exchange, http.client.HTTPResponse]:
        """Send one request, again if the server limits requests, and return the reply with its
        body unread."""
        raw = json.dumps(body).encode() if isinstance(body, dict) else body
        exchange = Exchange(method, path, raw, has_key=key)
        self.server.trace.append(exchange)
        response = self._send(exchange)
        for _ in range(LIMITED_TRIES):
            if response.status != 429:
                break
            response.read()
            pause = response.getheader("retry-after") or ""
            time.sleep(min(int(pause) if pause.isdigit() else 2, LIMITED_S))
            response = self._send(exchange)
        return exchange, response

    def _send(self, exchange: Exchange) -> http.client.HTTPResponse:
        path, keyed = self.server.base + exchange.path, self.server.keyed(exchange)
        headers = {"content-type": "application/json", **keyed}
        self._connection.request(exchange.method, path, exchange.body, headers)
        response = self._connection.getresponse()
        exchange.status = response.status
        exchange.headers = {name.lower(): value for name, value in response.getheaders()}
        return response

    def upgraded(self, exchange: Exchange) -> tuple[socket.socket, BinaryIO]:
        """Ask for a WebSocket. Returns what it is written to and read from."""
        self.server.trace.append(exchange)
        key = b64encode(os.urandom(16)).decode()
        headers = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
        headers |= {"sec-websocket-key": key, **self.server.keyed(exchange)}
        self._connection.request("GET", self.server.base + exchange.path, None, headers)
        response: Any = self._connection.getresponse()
        exchange.status = response.status
        exchange.reply = b"" if response.status == 101 else response.read()
        return self._connection.sock, response.fp

    def call(self, method: str, path: str, body: Json | bytes | None = None) -> Exchange:
        """Send one request and read its reply."""
        exchange, response = self.send(method, path, body)
        exchange.reply = response.read()
        return exchange

    def open(self) -> None:
        """Connect now, and not by the first request."""
        self._connection.connect()

    def close(self) -> None:
        self._connection.close()


class Server:
    """The judged server."""

    def __init__(self, url: str, key: str = "", model: str = "", patience_s: float = 60) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.hostname is None or parts.scheme not in ("http", "https"):
            raise ValueError(f"{url} is no address of a server: give http://HOST:PORT/v1.")
        self.host, self.secure = parts.hostname, parts.scheme == "https"
        self.port = parts.port or (443 if self.secure else 80)
        self.base = parts.path.rstrip("/") or "/v1"
        self.key, self.model, self.patience_s = key, model, patience_s
        self.trace: list[Exchange] = []
        """The exchanges of the check that is at work."""

    def copy(self) -> Server:
        """The same server, with a trace of its own."""
        return Server(self.url, self.key, self.model, self.patience_s)

    @property
    def url(self) -> str:
        """The address with its path, and without a `/` at its end."""
        return f"{'https' if self.secure else 'http'}://{self.host}:{self.port}{self.base}"

    def keyed(self, exchange: Exchange) -> dict[str, str]:
        """The headers that carry the key."""
        key = self.key if exchange.has_key else ""
        if exchange.path.startswith("/messages"):
            version = {"anthropic-version": "2023-06-01"}
            return {**version, "x-api-key": key} if key else version
        return {"authorization": f"Bearer {key}"} if key else {}

    @contextmanager
    def link(self) -> Iterator[Link]:
        """A connection for several requests."""
        link = Link(self)
        try:
            yield link
        finally:
            link.close()

    def call(
        self,
        method: str,
        path: str,
        body: Json | bytes | None = None,
        *,
        key: bool = True,
    ) -> Exchange:
        """Send one request over a connection of its own and read the reply."""
        with self.link() as link:
            exchange, response = link.send(method, path, body, key=key)
            with response:
                exchange.reply = response.read()
        return exchange

    @contextmanager
    def stream(self, method: str, path: str, body: Json | None = None) -> Iterator[Stream]:
        """Send one request, and let its reply be read event by event."""
        with self.link() as link:
            exchange, response = link.send(method, path, body)
            with response:
                yield Stream(exchange, response, link)
