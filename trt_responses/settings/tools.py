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
        description="Whether `code_interpreter` runs here: shut in a box, or, for who insists, "
        "with all rights of the server.",
    )
    shell: Literal["off", "boxed"] = Field(
        "off",
        description="Whether `shell` with a container runs here: shut in a box. Its commands take "
        "what is set for code: seconds, memory, containers.",
    )
    python_executable: Path | None = Field(
        None, description="Interpreter for the model's code, 3.11 or newer; none: the server's own."
    )
    python_s: Seconds = Field(30.0, description="Seconds after which a call's code is ended.")
    python_bytes: int = Field(
        1024 * MIB, ge=256 * MIB, le=LARGEST, description="Memory of one interpreter, addressed."
    )
    container_bytes: int = Field(
        256 * MIB, ge=MIB, le=LARGEST, description="Bytes of files in one container."
    )
    containers: Positive = Field(16, description="Containers at once, each with an interpreter.")
    browser: Literal["off", "boxed", "unboxed"] = Field(
        "off",
        description="Whether `web_search` runs here: pages are read by a process in a box, or, for "
        "who insists, by one without.",
    )
    browser_opens: Literal["seen", "any"] = Field(
        "seen",
        description="URLs that the model may open: those it was shown or given, or any.",
    )
    browser_ports: Words = Field(("80", "443"), description="Ports that pages may be fetched from.")
    private_networks: Words = Field(
        (),
        description="Networks, such as `10.1.0.0/16`, that are not public and may be reached for a "
        "model or a client all the same.",
    )
    search_url: str | None = Field(
        None,
        description="What searches for the browser: a SearXNG server, http://localhost:8080, or "
        "`brave`.",
    )
    search_key: str | None = Field(
        None,
        repr=False,
        description="The search service's key, which Brave asks for; SearXNG: a bearer token.",
    )
    mcp_servers: Path | None = Field(
        None,
        description="JSON file of MCP servers by their labels, whose tools requests may use; see "
        "tools.md. Secrets may stand in it.",
    )
    mcp_urls: Words = Field(
        (),
        description="URLs at or below which a request may name an MCP server of its own; none: no "
        "request may.",
    )
    mcp_call_s: Seconds = Field(60.0, description="Seconds after which an MCP call is given up.")
