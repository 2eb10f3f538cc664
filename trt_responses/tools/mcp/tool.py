"""The tool `mcp`: calls tools of MCP servers within the response.

It decides which server a request may use. Works with servers and connections: no Harmony, no log
and no HTTP.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

from trt_responses.errors import InvalidRequest, invalid_value
from trt_responses.tool import Function, Opening, Recipient, ToolAnswer, ToolCall
from trt_responses.tools.fetch_guard import Reach
from trt_responses.tools.mcp.limits import Fault, Limits
from trt_responses.tools.mcp.offers import MadeOnce, Offer, offer_key, offer_of
from trt_responses.tools.mcp.sdk import Connection
from trt_responses.tools.mcp.servers import Local, Place, Remote, Server, place_of
from trt_responses.tools.mcp.words import (
    Listed,
    schema_of,
    texts_of,
)
from trt_responses.tools.session import NO_ITEMS, NO_JSON, Listing

LISTS = 256
"""Cached lists of tools."""
RESERVED_HEADERS = {
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "accept",
}
"""Headers that a request cannot set."""


class Target(NamedTuple):
    """A server as one request uses it."""

    label: str
    at: Remote | Local
    tools: frozenset[str] | None
    """The tools that the operator allows; None: all."""
    timeout_s: float | None = None
    """The timeout of a call, if the operator gives this server one of its own."""


class McpTool:
    """The tool, as the operator configured it."""

    kind = "mcp"
    name = "mcp"
    recipients = ()
    functions: Mapping[str, Function] = {}
    description = None

    def __init__(
        self,
        servers: Mapping[str, Server],
        allowed: Sequence[Place],
        limits: Limits,
        reach: Reach,
        *,
        list_s: float,
        clock_s: Callable[[], float],
    ) -> None:
        """`allowed`: URL prefixes of servers that a request may name. `list_s`: the lifetime of a
        cached list of tools."""
        self.servers = servers
        self.limits = limits
        self._allowed = allowed
        self._reach = reach
        self._list_s = list_s
        self._clock_s = clock_s
        self._lists: OrderedDict[bytes, tuple[float, list[Listed]]] = OrderedDict()
        self._read: MadeOnce[list[Listed]] = MadeOnce()
        self._offers: MadeOnce[Offer] = MadeOnce()
        self._shared: dict[str, Connection] = {}
        self._open: set[Connection] = set()

    @property
    def deadline_s(self) -> float:
        """Of a call of the slowest server."""
        own = [one.timeout_s for one in self.servers.values() if one.timeout_s is not None]
        return self.limits.connect_s + max([self.limits.call_s, *own])

    @property
    def processes(self) -> int:
        return sum(one.is_process and not one.is_gone for one in self._open)

    async def start(self) -> None:
        """Do nothing: an unreachable server is reported to its requests."""

    async def stop(self) -> None:
        for connection in list(self._open):
            connection.end()
        for connection in list(self._open):
            await connection.ended()
        self._open.clear()

    async def open(self, opening: Opening) -> McpSession:
        """A session with the list of its tools, from the conversation, the cache or the server. If
        that fails, the list reports the error and the response continues without these tools."""
        target = self._target(opening)
        session = McpSession(self, target, opening)
        try:
            await session.list_tools()
        except BaseException:
            await session.close()
            raise
        return session

    def connect(self, target: Target) -> Connection:
        """A new connection, or the existing one of a shared server."""
        shared = isinstance(target.at, Local) and target.at.shared
        cached = self._shared.get(target.label)
        if shared and cached is not None and not cached.over:
            return cached
        limits = self.limits
        if target.timeout_s is not None:
            limits = replace(limits, call_s=target.timeout_s)
        connection = Connection(target.at, limits, self._reach)
        self._open.add(connection)
        connection.when_gone(self._open.discard)  # it holds the request's secrets
        if shared:
            self._shared[target.label] = connection
        return connection

    def remembered(self, key: bytes) -> list[Listed] | None:
        until, tools = self._lists.get(key, (0.0, []))
        return tools if self._clock_s() < until else None

    def remember(self, key: bytes, tools: list[Listed]) -> list[Listed]:
        """The list that is cached: the very one that was, where nothing has changed."""
        _, before = self._lists.get(key, (0.0, tools))
        if before == tools:
            tools = before
        self._lists[key] = (self._clock_s() + self._list_s, tools)
        self._lists.move_to_end(key)
        while len(self._lists) > LISTS:
            self._lists.popitem(last=False)
        return tools

    def read(self, tools: list[Any]) -> list[Listed]:
        """A list that stands in the conversation."""
        return self._read.of(tools, b"", lambda: _plain(_read(tools)))

    def offer(self, listed: list[Listed], target: Target, options: Mapping[str, Any]) -> Offer:
        """What a request of these options is offered. Raises a `Fault` where it cannot be."""
        most = self.limits.max_tools
        key = offer_key(options, target.tools)
        return self._offers.of(listed, key, lambda: offer_of(listed, options, target.tools, most))

    def _target(self, opening: Opening) -> Target:
        options, place = opening.options, opening.place
        label, url = options["server_label"], options.get("server_url")
        headers = _headers(options, place)
        if url is not None:
            self._check_url(url, f"{place}.server_url")
            return Target(label, Remote(url, headers), None)
        server = self.servers.get(label)
        if server is None:
            raise invalid_value(
                f"{place}.server_label",
                "no MCP server is configured under this label; for your own server, set "
                "'server_url'",
            )
        if isinstance(server.at, Local):
            if headers:
                what = "authorization" if options.get("authorization") else "headers"
                raise invalid_value(
                    f"{place}.{what}", "this server is a process and takes no headers"
                )
            return Target(label, server.at, server.tools, server.timeout_s)
        configured = {name.lower() for name in server.at.headers}
        added = {name: value for name, value in headers.items() if name.lower() not in configured}
        remote = Remote(server.at.url, {**server.at.headers, **added})
        return Target(label, remote, server.tools, server.timeout_s)

    def _check_url(self, url: str, param: str) -> None:
        try:
            requested = place_of(url)
        except ValueError as fault:
            raise invalid_value(param, str(fault)) from None
        if not any(allowed.holds(requested) for allowed in self._allowed):
            raise invalid_value(
                param,
                "requests may not name this server; the operator allows URLs in "
                "TRT_RESPONSES_MCP_URLS",
            )


class McpSession:
    """One response's use of one server."""

    def __init__(self, tool: McpTool, target: Target, opening: Opening) -> None:
        self.recipients: Mapping[str, Recipient] = {}
        self.listing: Listing | None = None
        self._tool = tool
        self._target = target
        self._options = opening.options
        self._place = opening.place
        self._items = opening.items
        self._key = _key(opening.owner, target)
        self._connection: Connection | None = None

    async def list_tools(self) -> None:
        """List the server's tools, and set `listing` and `recipients`."""
        label = self._target.label
        before = _list_before(self._items, label)
        try:
            listed = await self._listed() if before is None else self._tool.read(before)
            offer = self._tool.offer(listed, self._target, self._options)
        except Fault as fault:
            if self._options.get(NO_ITEMS):
                raise InvalidRequest(
                    f"The MCP server '{label}' did not list its tools: {fault.message}",
                    param=self._place,
                    code="mcp_list_failed",
                ) from None
            self.listing = Listing(label, (), fault.message)
            await self.close()
            return
        if before is None:
            self.listing = offer.listing
        self.recipients = offer.recipients
        if not offer.recipients:
            await self.close()

    async def call(self, call: ToolCall) -> ToolAnswer:
        name = self.recipients[call.recipient].facts["name"]
        try:
            arguments = json.loads(call.text or "{}")
        except (ValueError, RecursionError) as error:
            return _failed(NO_JSON.format(error), -32602)
        if not isinstance(arguments, dict):
            return _failed("The arguments should be a JSON object. Please try again.", -32602)
        try:
            result = await self._connected().call(name, arguments)
        except Fault as fault:
            failure = {"type": fault.kind, "code": fault.code, "message": fault.message}
            return ToolAnswer(f"Error: {fault.message}", failed=True, details={"error": failure})
        texts = texts_of(result)
        text = "\n".join(texts)
        if result.is_error:
            content = [{"type": "text", "text": one} for one in texts]
            execution_error = {"type": "mcp_tool_execution_error", "content": content}
            return ToolAnswer(f"Error: {text}", failed=True, details={"error": execution_error})
        return ToolAnswer(text)

    async def close(self) -> None:
        """Disconnect without waiting: a session's end may take long."""
        shared = isinstance(self._target.at, Local) and self._target.at.shared
        if self._connection is not None and not shared:
            self._connection.end()

    async def _listed(self) -> list[Listed]:
        cached = self._tool.remembered(self._key)
        if cached is None:
            cached = self._tool.remember(self._key, _plain(await self._connected().tools()))
        return cached

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.over:
            self._connection = self._tool.connect(self._target)
        return self._connection


def _headers(options: Mapping[str, Any], place: str) -> dict[str, str]:
    """The request's headers for the server, with `authorization`."""
    headers = dict(options.get("headers") or {})
    for name, value in headers.items():
        token = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
        if not token or name.lower() in RESERVED_HEADERS:
            raise invalid_value(f"{place}.headers", "it contains a header that requests cannot set")
        if not value.isascii() or not value.isprintable():
            raise invalid_value(
                f"{place}.headers", "a value has characters that headers do not have"
            )
    authorization = options.get("authorization")
    if authorization is not None:
        if not authorization.isascii() or not authorization.isprintable():
            raise invalid_value(
                f"{place}.authorization", "it has characters that headers do not have"
            )
        if any(name.lower() == "authorization" for name in headers):
            raise invalid_value(
                f"{place}.headers", "it contains 'authorization' too: set one of the two"
            )
        headers["authorization"] = f"Bearer {authorization}"
    return headers


def _key(owner: str, target: Target) -> bytes:
    """The cache key of a list of tools: a digest that reveals no secret."""
    digest = blake2b(digest_size=16)
    at = target.at
    parts = [owner, target.label]
    if isinstance(at, Remote):
        parts += [at.url, *(text for pair in sorted(at.headers.items()) for text in pair)]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part.encode())
    return digest.digest()


def _list_before(items: Sequence[Mapping[str, Any]], label: str) -> list[Any] | None:
    """The list in the conversation, or None; it is not fetched again."""
    for item in reversed(items):
        if item.get("type") == "mcp_list_tools" and item.get("server_label") == label:
            return None if item.get("error") is not None else item.get("tools", [])
    return None


def _read(tools: Sequence[Mapping[str, Any]]) -> list[Listed]:
    """A list of an item, as its server gave it."""
    return [
        Listed(
            tool["name"],
            str(tool.get("description") or ""),
            schema if isinstance(schema := tool.get("input_schema"), dict) else {},
            notes if isinstance(notes := tool.get("annotations"), dict) else None,
        )
        for tool in tools
        if isinstance(tool.get("name"), str)
    ]


def _plain(listed: Sequence[Listed]) -> list[Listed]:
    return [one._replace(input_schema=schema_of(one), plain=True) for one in listed]


def _failed(text: str, code: int) -> ToolAnswer:
    error = {"type": "mcp_protocol_error", "code": code, "message": text}
    return ToolAnswer(text, failed=True, details={"error": error})
