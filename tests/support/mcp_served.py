"""An app whose requests may use an MCP server, its requests, and readers of its answers."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.support.hostile_http import SERVER, hostile_http
from tests.support.mcp_site import mcp_site, tool
from tests.support.served import ANSWER, SETTINGS, served
from trt_responses.backends.tools import mcp_tool
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from tests.support.asgi import Call, Json
    from tests.support.mcp_site import McpSite
    from tests.support.served import Served, Written
    from trt_responses.tool import Tool


LOOPBACK: dict[str, Any] = {"private_networks": ("127.0.0.0/8",)}


def calling(name: str, arguments: str = "{}") -> str:
    return (
        f"<|channel|>commentary to=functions.demo__{name} <|constrain|>json<|message|>"
        f"{arguments}<|call|>"
    )


def offer(server: McpSite | None = None, **changes: Any) -> Json:
    """The demo server, as a request names it."""
    tool = {"type": "mcp", "server_label": "demo", "require_approval": "never"}
    return tool | ({"server_url": server.url} if server else {}) | changes


@asynccontextmanager
async def using(
    server: McpSite, *written: Written, urls: Sequence[str] | None = None, **settings: Any
) -> AsyncIterator[Served]:
    """An app whose requests may name the server."""
    allowed: dict[str, Any] = {"mcp_urls": (server.url,) if urls is None else urls}
    async with served(*written or (ANSWER,), **LOOPBACK | allowed | settings) as app:
        yield app


def items(call: Call, kind: str) -> list[Json]:
    return [item for item in call.json()["output"] if item["type"] == kind]


def offered(app: Served) -> list[str]:
    """The server's tools that the last prompt shows."""
    lines = app.prompt_text().splitlines()
    return [line.split(" ")[1][6:] for line in lines if line.startswith("type demo__")]


def refused(call: Call, param: str, *words: str) -> None:
    assert (call.status, call.error["param"]) == (400, param), call.body
    for word in words:
        assert word in call.error["message"]


@asynccontextmanager
async def with_process(
    tmp_path: Path,
    how: str,
    *written: Written,
    shared: bool = False,
    more: Json | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """An app whose demo server is a process that behaves so; `more` of its entry."""
    entry = {"command": sys.executable, "args": [str(SERVER), how], "shared": shared}
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"demo": entry | (more or {})}))
    async with served(*written, mcp_servers=path, **settings) as app:
        yield app


@asynccontextmanager
async def over(
    transport: str,
    tmp_path: Path,
    how: str,
    *written: Written,
    more: Json | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """An app whose demo server behaves so, over its pipes or over HTTP; `more` of its entry."""
    if transport == "stdio":
        async with with_process(tmp_path, how, *written, more=more, **settings) as app:
            yield app
        return
    path = tmp_path / "servers.json"
    async with hostile_http(how) as url:
        path.write_text(json.dumps({"demo": {"url": url, **(more or {})}}))
        async with served(*written, mcp_servers=path, **LOOPBACK, **settings) as app:
            yield app


THREE = (
    tool("find", annotations={"readOnlyHint": True}),
    tool("list", annotations={"readOnlyHint": True, "title": "List"}),
    tool("drop", annotations={"destructiveHint": True}),
)


@asynccontextmanager
async def python_and_demo(
    tmp_path: Path, python: Tool, found: str = "found"
) -> AsyncIterator[dict[str, Any]]:
    """The settings of a server with this Python, and an MCP server whose tool finds that."""
    async with mcp_site() as site:
        site.results["find"] = {"content": [{"type": "text", "text": found}]}
        path = tmp_path / "servers.json"
        path.write_text(json.dumps({"demo": {"url": site.url}}))
        named = LOOPBACK | {"mcp_servers": path}
        yield named | {"tools": [python, mcp_tool(Settings(**SETTINGS | named))]}
