"""A server over HTTP: its address, and small requests to it. No streams, and no engine's fields."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httptools
import orjson

from trt_responses.errors import StartupError


class Address(NamedTuple):
    """The address of a server, and the model name that clients use; "" for none."""

    host: str
    port: int
    model: str = ""
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return "/".join(filter(None, (f"{host}:{self.port}", self.model)))

    @property
    def context(self) -> ssl.SSLContext | None:
        return ssl.create_default_context() if self.tls else None


def address_of(text: str, *, tls: bool = False) -> Address:
    """The address in a text `host:port` or `host:port/model`."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or parts.username is not None:
        raise StartupError(
            f"{text.rpartition('@')[2]!r:.100} is no address of an engine: use host:port, or "
            "host:port/model with the model name that clients use."
        )
    return Address(host, port, parts.path.strip("/"), tls)


class Reply(NamedTuple):
    """A reply; status 0 with a reason if there was none."""

    status: int
    body: bytes
    reason: str = ""
    late: bool = False
    """Whether the server took the request and did not answer in time."""

    @property
    def fields(self) -> Any:
        """The body's JSON, or an empty object."""
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(self.body)
        return {}

    @property
    def message(self) -> str:
        """Why the server refused, or did not answer."""
        if self.status == 0:
            return self.reason
        return message_of(self.body) or f"status {self.status}"


def message_of(body: bytes) -> str:
    """The message in an error's body, in one of the shapes that servers use; "" without one."""
    with suppress(orjson.JSONDecodeError):
        error = orjson.loads(body)
        for name in ("error", "detail", "message"):
            error = error.get(name, error) if isinstance(error, dict) else error
        return str(error) if isinstance(error, str | list) else ""
    return ""


async def query(
    address: Address,
    method: str,
    path: str,
    timeout_s: float | None,
    content: bytes = b"",
    headers: Sequence[str] = (),
) -> Reply:
    """The reply to a small request."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _reply(address, method, path, content, headers)
    except TimeoutError:
        return Reply(0, b"", f"{address} does not answer within {timeout_s:g} s", late=True)
    except (OSError, httptools.HttpParserError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        return Reply(0, b"", f"{address} does not answer ({why})")


def request_bytes(
    method: str, host: str, port: int, path: str, content: bytes, headers: Sequence[str]
) -> bytes:
    """A request with this JSON, after whose reply the server closes the connection."""
    lines = (
        f"{method} {path} HTTP/1.1",
        f"Host: {host}:{port}",
        *headers,
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + content


async def _reply(
    address: Address, method: str, path: str, content: bytes, headers: Sequence[str]
) -> Reply:
    host, port = address.host, address.port
    reader, writer = await asyncio.open_connection(host, port, ssl=address.context)
    try:
        writer.write(request_bytes(method, host, port, path, content, headers))
        body = _Body()
        parser = httptools.HttpResponseParser(body)
        while not body.whole and (data := await reader.read(65_536)):
            parser.feed_data(data)
        if not body.whole:
            return Reply(0, b"", f"{address} broke the connection")
        return Reply(parser.get_status_code(), bytes(body.bytes))
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


class _Body:
    """A reply's body, filled by the HTTP parser."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.whole = False

    def on_body(self, body: bytes) -> None:
        self.bytes += body

    def on_message_complete(self) -> None:
        self.whole = True
