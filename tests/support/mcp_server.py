"""An MCP server of the SDK's own, over its pipes or over HTTP: `python -m … [port]`."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import Image, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("demo")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return f"{a} + {b} = {a + b}"


@server.tool()
def delete(path: str) -> str:
    """Deletes a file."""
    return f"{path} is gone"


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("boom")


@server.tool()
def draw() -> Image:
    """Draws a picture."""
    return Image(data=b"PNG" * 10, format="png")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="streamable-http", port=int(sys.argv[1]))
    else:
        server.run(transport="stdio")
