"""HTTP as the judged server speaks it: every exchange is kept with its bytes, none is repeated."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]


@dataclass
class Exchange:
    """A request and what came back."""

    method: str
    path: str
    body: bytes | None
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    reply: bytes = b""
    sent: Mapping[str, str] = field(default_factory=dict)
    """Headers of the request beside content type and key."""
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
        self._response = response
        self._link = link

    def __iter__(self) -> Iterator[Event]:
        lines: list[bytes] = []
        for line in self._response:
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
        self._server = server
        self._connection: http.client.HTTPConnection = kind(server.host, server.port, **options)

    def send(
        self,
        method: str,
        path: str,
        body: Json | bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        key: bool = True,
    ) -> tuple[Exchange, http.client.HTTPResponse]:
        """Send one request, and return the reply with its body unread."""
        server = self._server
        raw = json.dumps(body).encode() if isinstance(body, dict) else body
        exchange = Exchange(method, path, raw, sent=dict(headers or {}), has_key=key)
        server.trace.append(exchange)
        wire = {"content-type": "application/json", **(server.keyed(path) if key else {})}
        self._connection.request(method, server.base + path, raw, {**wire, **exchange.sent})
        response = self._connection.getresponse()
        exchange.status = response.status
        exchange.headers = {name.lower(): value for name, value in response.getheaders()}
        return exchange, response

    def call(self, method: str, path: str, body: Json | bytes | None = None) -> Exchange:
        """Send one request and read its reply."""
        exchange, response = self.send(method, path, body)
        exchange.reply = response.read()
        return exchange

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

    @property
    def url(self) -> str:
        """The address with its path, and without a `/` at its end."""
        return f"{'https' if self.secure else 'http'}://{self.host}:{self.port}{self.base}"

    def keyed(self, path: str) -> dict[str, str]:
        """The headers that carry the key."""
        if path.startswith("/messages"):
            return {"anthropic-version": "2023-06-01"} | (
                {"x-api-key": self.key} if self.key else {}
            )
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

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
        headers: Mapping[str, str] | None = None,
        key: bool = True,
    ) -> Exchange:
        """Send one request over a connection of its own and read the reply."""
        with self.link() as link:
            exchange, response = link.send(method, path, body, headers=headers, key=key)
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
