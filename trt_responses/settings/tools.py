"""The tools that the server runs: code, shell, browser and MCP."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from trt_responses.settings.values import (
    LARGEST,
    MIB,
    Positive,
    Seconds,
    SettingGroup,
    Words,
)


class ServerTools(SettingGroup):
    """Tools that the server runs."""

    python: Literal["off", "boxed", "unboxed"] = Field(
        "off",
        description="Run `code_interpreter` here: boxed (in a sandbox), or unboxed (with all "
        "rights of the server).",
    )
    shell: Literal["off", "boxed"] = Field(
        "off",
        description="Run `shell` with a container here: boxed (in a sandbox), within the limits of "
        "PYTHON_S, PYTHON_BYTES and CONTAINERS.",
    )
    python_executable: Path | None = Field(
        None,
        description="Python interpreter for the model's code, 3.11 or newer (default: the "
        "server's own).",
    )
    python_s: Seconds = Field(30.0, description="Timeout of one call's code, in seconds.")
    python_bytes: int = Field(
        1024 * MIB,
        ge=256 * MIB,
        le=LARGEST,
        description="Address space of one interpreter, in bytes.",
    )
    container_bytes: int = Field(
        256 * MIB,
        ge=MIB,
        le=LARGEST,
        description="Maximum size of all files in one container, in bytes.",
    )
    containers: Positive = Field(
        16, description="Maximum number of containers, each with an interpreter."
    )
    browser: Literal["off", "boxed", "unboxed"] = Field(
        "off",
        description="Run `web_search` here: boxed (pages are parsed in a sandbox), or unboxed.",
    )
    browser_opens: Literal["seen", "any"] = Field(
        "seen",
        description="URLs that the model may open: seen (in results, pages and messages), or any.",
    )
    browser_ports: Words = Field(("80", "443"), description="Ports that pages may be fetched from.")
    private_networks: Words = Field(
        (),
        description="Private networks, such as `10.1.0.0/16`, that tools may reach; others are "
        "refused.",
    )
    search_url: str | None = Field(
        None,
        description="Search service of the browser: URL of a SearXNG server, such as "
        "http://localhost:8080, or `brave`.",
    )
    search_key: str | None = Field(
        None,
        repr=False,
        description="Key of the search service; Brave requires one, SearXNG takes a bearer token.",
    )
    mcp_servers: Path | None = Field(
        None,
        description="JSON file of MCP servers by label that requests may use, with their "
        "secrets; see mcp-server.md.",
    )
    mcp_urls: Words = Field(
        (),
        description="URL prefixes of MCP servers that a request may name itself (default: none).",
    )
    tools: Words = Field((), description="Names of tools that installed packages bring.")
    mcp_call_s: Seconds = Field(60.0, description="Timeout of an MCP call, in seconds.")
