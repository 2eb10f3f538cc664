"""Creates the server's tools that the settings switch on."""

from __future__ import annotations

import sys
import time
from ipaddress import ip_network
from pathlib import Path
from subprocess import SubprocessError
from typing import TYPE_CHECKING

from trt_responses.backends.installed import maker, needed
from trt_responses.backends.settings import ContainerNumbers, McpNumbers, ToolSettings
from trt_responses.errors import StartupError
from trt_responses.prepare.memory import memory
from trt_responses.settings import PREFIX, hidden
from trt_responses.settings.values import MIB

if TYPE_CHECKING:
    from trt_responses.settings import Settings
    from trt_responses.tool import Tool
    from trt_responses.tools.addresses import Network
    from trt_responses.tools.mcp.servers import Place, Server
    from trt_responses.tools.mcp.tool import McpTool
    from trt_responses.tools.python.containers import Containers

BRAVE = "https://api.search.brave.com"
CONTAINER_FILES = 10_000
"""Files and directories in a container: enough for unpacked packages, few enough for the disk's
inodes."""
PYTHON_BYTES = 1024 * MIB
"""Least memory of an interpreter: a table of a few hundred MB with its copies fits."""
CONTAINER_IDLE_S = 1200.0
"""Seconds after which an unused container is removed, as at OpenAI."""


def tools_of(settings: Settings) -> list[Tool]:
    """The tools that the settings switch on."""
    chosen = ToolSettings.of(settings)
    tools: list[Tool] = []
    if chosen.python != "off" or chosen.shell != "off":
        with needed(f"{PREFIX}PYTHON and {PREFIX}SHELL: the code runner"):
            from trt_responses.tools.python.command import Shell
            from trt_responses.tools.python.shell import ShellTool
            from trt_responses.tools.python.tool import PythonTool
        shared = containers(settings)
        tools += [PythonTool(shared)] if chosen.python != "off" else []
        limits = Shell(interpreter_bytes(settings), ContainerNumbers.of(settings).container_bytes)
        tools += [ShellTool(shared, limits)] if chosen.shell != "off" else []
    if chosen.browser != "off":
        tools.append(browser_tool(settings))
    if chosen.mcp_servers is not None or chosen.mcp_urls:
        tools.append(mcp_tool(settings))
    try:
        return tools + [maker("tools", name)(settings) for name in chosen.tools]
    except StartupError as error:
        raise StartupError(f"{PREFIX}TOOLS: {error}") from None


def browser_tool(settings: Settings) -> Tool:
    """The tool `web_search`. Its packages are imported only if it is switched on."""
    chosen = ToolSettings.of(settings)
    with needed(f"{PREFIX}BROWSER: the browser", "browser"):
        from trt_responses.tools.browser import search
        from trt_responses.tools.browser.reading import Reading
        from trt_responses.tools.browser.tool import BrowserTool
        from trt_responses.tools.fetch_guard import Bounds as FetchBounds
        from trt_responses.tools.fetch_guard import Reach
    name, url = search_service(settings)
    bounds = FetchBounds()
    return BrowserTool(
        search.SERVICES[name](url, chosen.search_key, bounds.deadline_s),
        Reach(private_networks(settings)),
        bounds,
        Reading(boxed=chosen.browser == "boxed"),
    )


def search_service(settings: Settings) -> tuple[str, str]:
    """The name and the URL of the search service. Raises a `StartupError` if a setting is
    missing."""
    chosen = ToolSettings.of(settings)
    url = chosen.search_url
    if url is None:
        raise StartupError(
            f"{PREFIX}BROWSER: web search needs a search service: set {PREFIX}SEARCH_URL."
        )
    if url == "brave":
        if not chosen.search_key:
            raise StartupError(f"{PREFIX}SEARCH_KEY is not set: Brave needs a key.")
        return "brave", BRAVE
    return "searxng", url


def private_networks(settings: Settings) -> tuple[Network, ...]:
    """The networks that tools may reach for a model or a client, besides public addresses."""
    return tuple(map(ip_network, ToolSettings.of(settings).private_networks))


def mcp_tool(settings: Settings) -> McpTool:
    """The tool `mcp`, for the operator's servers and those that requests may name."""
    bounds = McpNumbers.of(settings)
    with needed(f"{PREFIX}MCP_SERVERS and {PREFIX}MCP_URLS: the MCP client", "mcp"):
        from trt_responses.tools.fetch_guard import Reach
        from trt_responses.tools.mcp.limits import Limits
        from trt_responses.tools.mcp.tool import McpTool
    servers, places = mcp_servers(settings)
    return McpTool(
        servers,
        places,
        Limits(bounds.mcp_connect_s, max_tools=bounds.mcp_tools),
        Reach(private_networks(settings), ports=None),
        list_s=bounds.mcp_list_s,
        clock_s=time.monotonic,
    )


def mcp_servers(settings: Settings) -> tuple[dict[str, Server], list[Place]]:
    """The configured servers, and the URL prefixes of servers that requests may name."""
    chosen = ToolSettings.of(settings)
    with needed(f"{PREFIX}MCP_SERVERS and {PREFIX}MCP_URLS: the MCP client", "mcp"):
        from trt_responses.tools.mcp.servers import place_of, servers_in
    servers = {}
    if chosen.mcp_servers is not None:
        servers = servers_in(chosen.mcp_servers, f"{PREFIX}MCP_SERVERS")
    places = []
    for url in chosen.mcp_urls:
        try:
            places.append(place_of(url))
        except ValueError as error:
            raise StartupError(f"{PREFIX}MCP_URLS: '{hidden(url)}': {error}.") from None
    return servers, places


def interpreter_bytes(settings: Settings, root: Path = Path("/")) -> int:
    """Memory of one interpreter, or of one command: a container's share of half of the machine, if
    that is more than the least."""
    half = memory(root).total_bytes // 2
    return max(half // ToolSettings.of(settings).containers, PYTHON_BYTES)


def containers(settings: Settings) -> Containers:
    """The containers in which code and commands run. Raises a `StartupError` if code could read the
    server's own data."""
    chosen = ToolSettings.of(settings)
    from trt_responses.tools.python.command import PROGRAMS
    from trt_responses.tools.python.container import Bounds
    from trt_responses.tools.python.containers import Containers
    from trt_responses.tools.python.directories import Usage
    from trt_responses.tools.python.process import Interpreter, readable_paths

    executable = str(chosen.python_executable or sys.executable)
    try:
        readable = readable_paths(executable)
    except (OSError, SubprocessError) as error:
        raise StartupError(f"{PREFIX}PYTHON_EXECUTABLE: no Python runs there: {error}.") from None
    data_dir = settings.data_dir.resolve()
    programs = PROGRAMS if chosen.shell != "off" else ()
    for path in map(Path, (*readable, *programs)):
        if data_dir.is_relative_to(path.resolve()):
            raise StartupError(
                f"{PREFIX}DATA_DIR: {data_dir} is inside {path}, which the model's code may read: "
                "choose another directory."
            )
    most_bytes = ContainerNumbers.of(settings).container_bytes
    disk = Usage(most_bytes, CONTAINER_FILES)
    return Containers(
        settings.data_dir / "containers",
        Interpreter(
            executable,
            readable,
            memory_bytes=interpreter_bytes(settings),
            file_bytes=most_bytes,
            boxed=chosen.python != "unboxed",
        ),
        Bounds(
            chosen.python_s,
            disk,
            CONTAINER_IDLE_S,
            chosen.containers,
            max(chosen.containers // 4, 1),  # of one owner, so that four find room
        ),
        clock_s=time.time,
    )
