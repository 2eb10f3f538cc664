"""`mcp`: the tools of any MCP server, called within the response.

Which server a request may use, what of it is offered, and what must be approved. Knows servers and
their connections; knows no Harmony but the namespace of functions, no log and no HTTP.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from trt_responses.errors import invalid_value
from trt_responses.tool import Function, Listing, Recipient, ToolAnswer, function_name
from trt_responses.tools.mcp.limits import Fault
from trt_responses.tools.mcp.sdk import Connection
from trt_responses.tools.mcp.servers import Local, Place, Remote, place_of
from trt_responses.tools.mcp.words import (
    Listed,
    description_of,
    schema_of,
    texts_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from trt_responses.tool import Opening, ToolCall
    from trt_responses.tools.fetch_guard import Reach
    from trt_responses.tools.mcp.limits import Limits
    from trt_responses.tools.mcp.servers import Server

FUNCTIONS = "functions."
LISTS = 256
"""Lists of tools that are remembered."""
OURS = {"host", "content-length", "content-type", "transfer-encoding", "connection", "accept"}
"""Headers that a request cannot set."""


class Wanted(NamedTuple):
    """A server, as one request uses it."""

    label: str
    at: Remote | Local
    tools: frozenset[str] | None
    """Those that the operator lets anybody use."""


class McpTool:
    """The tool, as the operator has configured it."""

    kind = "mcp"
    name = "mcp"
    recipients = ()
    functions: Mapping[str, Function] = {}
    description = None
    containers = None

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
        """`allowed` are the URLs below which a request may name a server; `list_s` is how long a
        list of tools is remembered."""
        self.servers = servers
        self.limits = limits
        self._allowed = allowed
        self._reach = reach
        self._list_s = list_s
        self._clock_s = clock_s
        self._lists: OrderedDict[bytes, tuple[float, list[Listed]]] = OrderedDict()
        self._shared: dict[str, Connection] = {}
        self._open: set[Connection] = set()

    @property
    def deadline_s(self) -> float:
        return self.limits.connect_s + self.limits.call_s

    @property
    def processes(self) -> int:
        return sum(one.is_process and not one.is_gone for one in self._open)

    async def start(self) -> None:
        """Do nothing: those who use a server hear that it is away."""

    async def stop(self) -> None:
        for connection in list(self._open):
            connection.end()
        for connection in list(self._open):
            await connection.ended()
        self._open.clear()

    async def open(self, opening: Opening) -> McpSession:
        """A session, with the list of what it offers: of the conversation, remembered, or fetched.
        What cannot be listed is told, and the response goes on without."""
        wanted = self._wanted(opening)
        session = McpSession(self, wanted, opening)
        try:
            await session.find_out()
        except BaseException:
            await session.close()
            raise
        return session

    def connect(self, wanted: Wanted) -> Connection:
        """A connection of its own, or the one of a server that is shared."""
        self._open = {one for one in self._open if not one.is_gone}
        shared = isinstance(wanted.at, Local) and wanted.at.shared
        known = self._shared.get(wanted.label)
        if shared and known is not None and not known.over:
            return known
        connection = Connection(wanted.at, self.limits, self._reach)
        self._open.add(connection)
        if shared:
            self._shared[wanted.label] = connection
        return connection

    def remembered(self, key: bytes) -> list[Listed] | None:
        until, tools = self._lists.get(key, (0.0, []))
        return tools if self._clock_s() < until else None

    def remember(self, key: bytes, tools: list[Listed]) -> None:
        self._lists[key] = (self._clock_s() + self._list_s, tools)
        self._lists.move_to_end(key)
        while len(self._lists) > LISTS:
            self._lists.popitem(last=False)

    def _wanted(self, opening: Opening) -> Wanted:
        options, place = opening.options, opening.place
        label, url = options["server_label"], options.get("server_url")
        headers = _headers(options, place)
        if url is not None:
            self._check_url(url, f"{place}.server_url")
            return Wanted(label, Remote(url, headers), None)
        server = self.servers.get(label)
        if server is None:
            raise invalid_value(
                f"{place}.server_label",
                "no MCP server is configured here under this label; a server of your own needs "
                "its 'server_url'",
            )
        if isinstance(server.at, Local):
            if headers:
                what = "authorization" if options.get("authorization") else "headers"
                raise invalid_value(
                    f"{place}.{what}", "this server is a process and takes no headers"
                )
            return Wanted(label, server.at, server.tools)
        theirs = {name.lower() for name in server.at.headers}
        added = {name: value for name, value in headers.items() if name.lower() not in theirs}
        return Wanted(label, Remote(server.at.url, {**server.at.headers, **added}), server.tools)

    def _check_url(self, url: str, param: str) -> None:
        try:
            asked = place_of(url)
        except ValueError as fault:
            raise invalid_value(param, str(fault)) from None
        if not any(allowed.holds(asked) for allowed in self._allowed):
            raise invalid_value(
                param,
                "this server is not one that requests may name here; the operator lists those in "
                "TRT_RESPONSES_MCP_URLS",
            )


class McpSession:
    """One response's use of one server."""

    def __init__(self, tool: McpTool, wanted: Wanted, opening: Opening) -> None:
        self.recipients: dict[str, Recipient] = {}
        self.listing: Listing | None = None
        self._tool = tool
        self._wanted = wanted
        self._options = opening.options
        self._items = opening.items
        self._key = _key(opening.owner, wanted)
        self._connection: Connection | None = None

    async def find_out(self) -> None:
        """Find out what the server offers."""
        label = self._wanted.label
        listed = known = _listed_before(self._items, label)
        try:
            if listed is None:
                listed = await self._listed()
            offered = self._offered(listed)
        except Fault as fault:
            self.listing = Listing(label, (), fault.message)
            await self.close()
            return
        if known is None:
            self.listing = Listing(label, tuple(map(_as_item, offered.values())))
        about = self._options.get("server_description")
        for name, tool in offered.items():
            kind = "mcp_approval" if self._waits(tool) else "mcp"
            facts = {"server_label": label, "name": tool.name}
            function = Function(description_of(tool, about), schema_of(tool))
            about = None  # it stands before the first alone
            self.recipients[FUNCTIONS + name] = Recipient(kind, facts, function=function)
        if not offered:
            await self.close()

    async def call(self, call: ToolCall) -> ToolAnswer:
        name = self.recipients[call.recipient].facts["name"]
        try:
            arguments = json.loads(call.text or "{}")
        except ValueError as error:
            return _failed(
                f"Error parsing tool arguments as JSON: {error}. Please ensure the tool call "
                "arguments are valid JSON and try again.",
                -32602,
            )
        if not isinstance(arguments, dict):
            return _failed("The arguments should be a JSON object. Please try again.", -32602)
        try:
            result = await self._connected().call(name, arguments)
        except Fault as fault:
            told = {"type": fault.kind, "code": fault.code, "message": fault.message}
            return ToolAnswer(f"Error: {fault.message}", failed=True, details={"error": told})
        texts = texts_of(result)
        text = "\n".join(texts)
        if result.is_error:
            content = [{"type": "text", "text": one} for one in texts]
            told = {"type": "mcp_tool_execution_error", "content": content}
            return ToolAnswer(f"Error: {text}", failed=True, details={"error": told})
        return ToolAnswer(text)

    async def close(self) -> None:
        """The server is left behind the response's back: a session's end may take long."""
        shared = isinstance(self._wanted.at, Local) and self._wanted.at.shared
        if self._connection is not None and not shared:
            self._connection.end()

    async def _listed(self) -> list[Listed]:
        known = self._tool.remembered(self._key)
        if known is None:
            known = await self._connected().tools()
            self._tool.remember(self._key, known)
        return known

    def _offered(self, listed: Sequence[Listed]) -> dict[str, Listed]:
        """What the operator and the request allow, by the model's names. Raises a `Fault` for too
        many, and for two that have one name for the model."""
        theirs, asked = self._wanted.tools, self._options.get("allowed_tools")
        offered: dict[str, Listed] = {}
        for tool in listed:
            if (theirs is not None and tool.name not in theirs) or not _allowed(tool, asked):
                continue
            name = function_name(self._wanted.label, tool.name)
            other = offered.setdefault(name, tool)
            if other.name != tool.name:  # one that is listed twice is one tool
                raise Fault(
                    f"The server's tools '{other.name:.200}' and '{tool.name:.200}' have one name "
                    f"for the model, '{name}': name one of them in 'allowed_tools'."
                )
        if len(offered) > (most := self._tool.limits.max_tools):
            raise Fault(
                f"The server offers {len(offered)} tools, more than {most}: name those that are "
                "needed in 'allowed_tools'."
            )
        return offered

    def _waits(self, tool: Listed) -> bool:
        """Whether a call is to be approved first."""
        asked = self._options.get("require_approval")
        if asked is None or isinstance(asked, str):
            return asked != "never"
        never, always = asked.get("never"), asked.get("always")
        if always is not None and _matches(tool, always):
            return True
        return never is None or not _matches(tool, never)

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.over:
            self._connection = self._tool.connect(self._wanted)
        return self._connection


def _headers(options: Mapping[str, Any], place: str) -> dict[str, str]:
    """The request's headers for the server, `authorization` among them."""
    headers = dict(options.get("headers") or {})
    for name, value in headers.items():
        token = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
        if not token or name.lower() in OURS:
            raise invalid_value(f"{place}.headers", "it holds a header that cannot be set")
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
            raise invalid_value(f"{place}.headers", "'authorization' stands there too")
        headers["authorization"] = f"Bearer {authorization}"
    return headers


def _key(owner: str, wanted: Wanted) -> bytes:
    """What a list of tools depends on: no secret can be read from it."""
    told = blake2b(digest_size=16)
    at = wanted.at
    parts = [owner, wanted.label]
    if isinstance(at, Remote):
        parts += [at.url, *(text for pair in sorted(at.headers.items()) for text in pair)]
    for part in parts:
        told.update(len(part).to_bytes(8, "little") + part.encode())
    return told.digest()


def _listed_before(items: Sequence[Mapping[str, Any]], label: str) -> list[Listed] | None:
    """The list that the conversation holds, if it does: it is not fetched again."""
    for item in reversed(items):
        if item.get("type") != "mcp_list_tools" or item.get("server_label") != label:
            continue
        if item.get("error") is not None:
            return None
        return [
            Listed(
                tool["name"],
                str(tool.get("description") or ""),
                schema if isinstance(schema := tool.get("input_schema"), dict) else {},
                notes if isinstance(notes := tool.get("annotations"), dict) else None,
            )
            for tool in item.get("tools", ())
            if isinstance(tool.get("name"), str)
        ]
    return None


def _as_item(tool: Listed) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": description_of(tool, None),
        "input_schema": schema_of(tool),
        "annotations": tool.annotations,
    }


def _allowed(tool: Listed, asked: Collection[str] | Mapping[str, Any] | None) -> bool:
    if asked is None:
        return True
    return _matches(tool, asked) if isinstance(asked, dict) else tool.name in asked


def _matches(tool: Listed, asked: Mapping[str, Any]) -> bool:
    """Whether a filter has the tool: by name, by whether it only reads, or by both."""
    names, read_only = asked.get("tool_names"), asked.get("read_only")
    if names is not None and tool.name not in names:
        return False
    return read_only is None or read_only == bool((tool.annotations or {}).get("readOnlyHint"))


def _failed(text: str, code: int) -> ToolAnswer:
    error = {"type": "mcp_protocol_error", "code": code, "message": text}
    return ToolAnswer(text, failed=True, details={"error": error})
