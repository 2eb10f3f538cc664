"""The settings of engines, stores and tools, which name one of the existing kinds or bound it."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trt_responses.settings.values import (
    MIB,
    YEAR_S,
    FixedGroup,
    HeaderKey,
    Positive,
    Seconds,
    SettingGroup,
    Words,
    http_url,
)


class StoreSettings(SettingGroup):
    """What a store keeps, and for how long."""

    store_bytes: Positive = Field(
        256 * MIB, description="Maximum size of stored responses, in bytes after compression."
    )
    store_age_s: float | None = Field(
        30 * 86_400,
        gt=0,
        le=100 * YEAR_S,
        allow_inf_nan=False,
        description="Age at which stored responses expire, in seconds.",
    )
    lease_s: Seconds = Field(
        30.0,
        ge=0.1,
        description="Seconds until another server notices that a server died: its background "
        "responses look alive and its conversations stay locked until then.",
    )


class StoreNumbers(FixedGroup):
    """Bounds of a store."""

    takeover_s: float = Field(
        300.0,
        description="After LEASE_S, in which another server of the same store may resume a dead "
        "server's background responses: a new machine is up by then, and no client waits longer.",
    )


class EngineSettings(SettingGroup):
    """Engines of this machine, and how the models of others write."""

    engine_process: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Run the engine in a separate process: `always`, `never`, or `auto` "
        "(TensorRT-LLM only).",
    )
    speaks: str = Field(
        "harmony",
        description="How the model of an engine of another server writes: harmony, a directory "
        "with its tokeniser and chat template, or the name of an installed package's dialect.",
    )
    max_calls: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Maximum tool calls in one turn (default: 1 for gpt-oss, 8 for other models).",
    )
    trtllm_python: Path | None = Field(
        None,
        description="Python interpreter that has TensorRT-LLM, 3.11 or newer (default: the "
        "server's own).",
    )
    context_tokens: Positive = Field(
        8192,
        le=2**24,
        description="Context length of a response on the embedded engine, in tokens.",
    )
    slots: Positive = Field(
        4, le=4096, description="Responses that the embedded engine generates at once."
    )
    threads: int | None = Field(
        None, ge=1, le=4096, description="Threads of the embedded engine or of onnxruntime."
    )
    prompt_cache_mib: int = Field(
        256, ge=0, le=2**20, description="MiB of prompts the embedded engine keeps beside SLOTS."
    )


def _networks(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        ip_network(value)  # raises a `ValueError` with the reason
    return values


def _search(value: str) -> str:
    return value if value == "brave" else http_url(value)


class ToolSettings(SettingGroup):
    """Tools that the server runs."""

    python: Literal["off", "boxed", "unboxed"] = Field(
        "off",
        description="Run `code_interpreter` here: boxed (in a sandbox), or unboxed (with all "
        "rights of the server).",
    )
    shell: Literal["off", "boxed"] = Field(
        "off",
        description="Run `shell` with a container here: boxed (in a sandbox), within the limits of "
        "PYTHON_S and CONTAINERS.",
    )
    python_executable: Path | None = Field(
        None,
        description="Python interpreter for the model's code, 3.11 or newer (default: the "
        "server's own).",
    )
    python_s: Seconds = Field(30.0, description="Timeout of one call's code, in seconds.")
    containers: Positive = Field(
        16, description="Maximum number of containers, each with an interpreter."
    )
    browser: Literal["off", "boxed", "unboxed"] = Field(
        "off",
        description="Run `web_search` here: boxed (pages are parsed in a sandbox), or unboxed.",
    )
    private_networks: Annotated[Words, AfterValidator(_networks)] = Field(
        (),
        description="Private networks, such as `10.1.0.0/16`, that tools may reach; others are "
        "refused.",
    )
    search_url: Annotated[str, AfterValidator(_search)] | None = Field(
        None,
        description="Search service of the browser: URL of a SearXNG server, such as "
        "http://localhost:8080, or `brave`.",
    )
    search_key: HeaderKey = Field(
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


class ContainerNumbers(FixedGroup):
    """Bounds of a container."""

    container_bytes: int = Field(
        256 * MIB,
        description="Of all files in one container: a table and its charts; all 16 take 4 GiB.",
    )


class McpNumbers(FixedGroup):
    """Bounds of MCP servers."""

    mcp_connect_s: float = Field(
        20.0, description="To start an MCP server or reach it, and to list its tools."
    )
    mcp_tools: int = Field(
        128, description="Of one MCP server: more confuse a model; `allowed_tools` chooses."
    )
    mcp_list_s: float = Field(300.0, description="For which a list of MCP tools is remembered.")
