"""The tools that a server runs, made as the settings switch them on."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.backends.installed import needed
from trt_responses.errors import StartupError
from trt_responses.settings import PREFIX

if TYPE_CHECKING:
    from trt_responses.settings import Settings
    from trt_responses.tool import Tool
    from trt_responses.tools.addresses import Network
    from trt_responses.tools.mcp.servers import Place, Server
    from trt_responses.tools.mcp.tool import McpTool
    from trt_responses.tools.python.command import Shell
    from trt_responses.tools.python.containers import Containers

BRAVE = "https://api.search.brave.com"
CONTAINER_FILES = 10_000
"""Files and directories in a container: what a program's packages unpack to, and inodes for all."""
CONTAINER_IDLE_S = 1200.0
"""Seconds after which an unused container is removed, as at OpenAI."""


def tools_of(settings: Settings) -> list[Tool]:
    """The tools that the settings switch on."""
    tools: list[Tool] = []
    if settings.python != "off" or settings.shell != "off":
        with needed(f"{PREFIX}PYTHON and {PREFIX}SHELL: what runs code"):
            from trt_responses.tools.python.shell import ShellTool
            from trt_responses.tools.python.tool import PythonTool
        held = containers(settings)
        tools += [PythonTool(held)] if settings.python != "off" else []
        tools += [ShellTool(held, commands(settings))] if settings.shell != "off" else []
    if settings.browser != "off":
        tools.append(browser_tool(settings))
    if settings.mcp_servers is not None or settings.mcp_urls:
        tools.append(mcp_tool(settings))
    return tools


def browser_tool(settings: Settings) -> Tool:
    """`web_search`. Its packages are loaded where it is switched on."""
    with needed(f"{PREFIX}BROWSER: the browser", "browser"):
        from trt_responses.tools.browser import search
        from trt_responses.tools.browser.reading import Reading
        from trt_responses.tools.browser.tool import BrowserTool, Opens
        from trt_responses.tools.fetch_guard import Bounds as FetchBounds
        from trt_responses.tools.fetch_guard import Reach
    name, url = search_service(settings)
    bounds = FetchBounds()
    return BrowserTool(
        search.SERVICES[name](url, settings.search_key, bounds.deadline_s),
        Opens(Reach(private_networks(settings), fetch_ports(settings)), settings.browser_opens),
        bounds,
        Reading(boxed=settings.browser == "boxed"),
    )


def search_service(settings: Settings) -> tuple[str, str]:
    """The name and the URL of the browser's search service. Raises a `StartupError` for a setting
    that is missing."""
    url = settings.search_url
    if url is None:
        raise StartupError(f"{PREFIX}BROWSER: it needs {PREFIX}SEARCH_URL, which searches.")
    if url == "brave":
        if not settings.search_key:
            raise StartupError(f"{PREFIX}SEARCH_KEY: Brave asks for a key.")
        return "brave", BRAVE
    if not url.startswith(("http://", "https://")):
        raise StartupError(f"{PREFIX}SEARCH_URL: expected http://…, https://… or brave.")
    return "searxng", url


def private_networks(settings: Settings) -> tuple[Network, ...]:
    """The networks that may be reached for a model or a client though they are not public."""
    from trt_responses.tools.addresses import network

    try:
        return tuple(map(network, settings.private_networks))
    except ValueError as fault:
        raise StartupError(f"{PREFIX}PRIVATE_NETWORKS: {fault}.") from None


def fetch_ports(settings: Settings) -> frozenset[int]:
    """The ports from which pages may be fetched."""
    try:
        return frozenset(map(int, settings.browser_ports))
    except ValueError:
        raise StartupError(f"{PREFIX}BROWSER_PORTS: expected numbers, such as 80,443.") from None


def mcp_tool(settings: Settings) -> McpTool:
    """The tool `mcp`, over the operator's servers and those that requests may name."""
    with needed(f"{PREFIX}MCP_SERVERS and {PREFIX}MCP_URLS: what asks MCP servers", "mcp"):
        from trt_responses.tools.fetch_guard import Reach
        from trt_responses.tools.mcp.limits import Limits
        from trt_responses.tools.mcp.tool import McpTool
    servers, places = mcp_servers(settings)
    return McpTool(
        servers,
        places,
        Limits(
            settings.mcp_connect_s,
            settings.mcp_call_s,
            max_tools=settings.mcp_tools,
        ),
        Reach(private_networks(settings), ports=None),
        list_s=settings.mcp_list_s,
        clock_s=time.monotonic,
    )


def mcp_servers(settings: Settings) -> tuple[dict[str, Server], list[Place]]:
    """The servers that are configured, and the URLs below which requests may name others."""
    with needed(f"{PREFIX}MCP_SERVERS and {PREFIX}MCP_URLS: what asks MCP servers", "mcp"):
        from trt_responses.tools.mcp.servers import place_of, servers_in
    servers = {}
    if settings.mcp_servers is not None:
        servers = servers_in(settings.mcp_servers, f"{PREFIX}MCP_SERVERS")
    places = []
    for url in settings.mcp_urls:
        try:
            places.append(place_of(url))
        except ValueError as error:
            raise StartupError(f"{PREFIX}MCP_URLS: '{url}': {error}.") from None
    return servers, places


def commands(settings: Settings) -> Shell:
    """How the commands of `shell` are run."""
    from trt_responses.tools.python.command import Shell

    return Shell(settings.python_bytes, settings.container_bytes)


def containers(settings: Settings) -> Containers:
    """The containers in which code and commands run. Raises a `StartupError` when the paths that
    code may read hold the server's own data."""
    from trt_responses.tools.python.command import PROGRAMS
    from trt_responses.tools.python.container import Bounds
    from trt_responses.tools.python.containers import Containers
    from trt_responses.tools.python.directories import Usage
    from trt_responses.tools.python.process import Interpreter, readable_paths

    executable = str(settings.python_executable or sys.executable)
    readable = readable_paths(executable)
    kept = settings.data_dir.resolve()
    programs = PROGRAMS if settings.shell != "off" else ()
    for path in map(Path, (*readable, *programs)):
        if kept.is_relative_to(path.resolve()):
            raise StartupError(
                f"{PREFIX}DATA_DIR: {kept} stands in {path}, which the model's code may read: "
                "choose another directory."
            )
    disk = Usage(settings.container_bytes, CONTAINER_FILES)
    return Containers(
        settings.data_dir / "containers",
        Interpreter(
            executable,
            readable,
            memory_bytes=settings.python_bytes,
            file_bytes=settings.container_bytes,
            boxed=settings.python != "unboxed",
        ),
        Bounds(
            settings.python_s,
            disk,
            CONTAINER_IDLE_S,
            settings.containers,
            max(settings.containers // 4, 1),  # of one owner, so that four find room
        ),
        clock_s=time.time,
    )
