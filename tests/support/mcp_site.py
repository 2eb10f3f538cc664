"""An MCP server on the test's own event loop, over HTTP: it counts its requests, and a test sets
its answers. It speaks JSON-RPC itself, so that it can say what no SDK would."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.support.small_site import Page, site_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from tests.support.small_site import Asked, Site

TEXT = {"content": [{"type": "text", "text": "found"}]}


def tool(name: str, description: str = "", **more: Any) -> dict[str, Any]:
    """A tool as a server lists it."""
    schema = {"type": "object", "properties": {}}
    return {"name": name, "description": description, "inputSchema": schema, **more}


class McpSite:
    """`tools` and `results`, by the names of tools, may be changed at any time."""

    def __init__(self, site: Site, tools: Sequence[dict[str, Any]]) -> None:
        self.tools = list(tools)
        self.results: dict[str, Mapping[str, Any]] = {}
        self.page: Page | None = None
        """What every request gets, in the place of an answer."""
        self.pages: dict[str, Page] = {}
        """The same of one method."""
        self.errors: dict[str, Mapping[str, Any]] = {}
        """Errors of the protocol, by method."""
        self._site = site

    @property
    def url(self) -> str:
        return self._site.url("/mcp")

    @property
    def asked(self) -> list[Asked]:
        return self._site.asked

    def count(self, method: str) -> int:
        """The number of requests of this method."""
        return self.methods.count(method)

    @property
    def methods(self) -> list[str]:
        bodies = [json.loads(asked.body) for asked in self.asked if asked.body]
        return [body["method"] for body in bodies if "method" in body]

    def answer(self, asked: Asked) -> Page:
        if self.page is not None:
            return self.page
        if asked.method != "POST":
            return Page(status=405)
        body = json.loads(asked.body)
        if "id" not in body or "method" not in body:
            return Page(status=202)
        if body["method"] in self.pages:
            return self.pages[body["method"]]
        reply = {"jsonrpc": "2.0", "id": body["id"], **self._outcome(body)}
        return Page(json.dumps(reply).encode(), "application/json")

    def _outcome(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["method"] in self.errors:
            return {"error": self.errors[body["method"]]}
        match body["method"]:
            case "initialize":
                version = body["params"]["protocolVersion"]
                about = {"name": "site", "version": "1"}
                result: Mapping[str, Any] = {
                    "protocolVersion": version,
                    "capabilities": {"tools": {}},
                    "serverInfo": about,
                }
            case "tools/list":
                result = {"tools": self.tools}
            case "tools/call":
                result = self.results.get(body["params"]["name"], TEXT)
            case _:
                return {"error": {"code": -32601, "message": "Method not found"}}
        return {"result": result}


@asynccontextmanager
async def mcp_site(*tools: dict[str, Any]) -> AsyncIterator[McpSite]:
    async with site_of({}) as site:
        server = McpSite(site, tools or (tool("find"),))
        site.pages["/mcp"] = server.answer
        yield server
