"""A process with an MCP server that behaves badly, over HTTP."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.imports import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SERVER = Path(__file__).with_name("hostile_mcp.py")


@asynccontextmanager
async def hostile_http(how: str) -> AsyncIterator[str]:
    """The URL of one that behaves so."""
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.hostile_mcp_http", how),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert server.stdout is not None
    port = int(await server.stdout.readline())
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        if server.returncode is None:
            server.kill()
        await server.communicate()
