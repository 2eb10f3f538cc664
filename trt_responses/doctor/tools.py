"""Checks the server's tools: the sandbox for code and pages, the search service, and MCP
servers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from urllib.parse import urlsplit

from trt_responses.backends.settings import ToolSettings
from trt_responses.backends.tools import (
    browser_tool,
    containers,
    mcp_servers,
    mcp_tool,
    search_service,
)
from trt_responses.doctor.check import Check, State
from trt_responses.doctor.listening import why_not
from trt_responses.errors import StartupError
from trt_responses.settings import Settings
from trt_responses.tools.box import NoBox, landlock_abi

Reachable = Callable[[str, int], str | None]
"""Why nothing listens at a host and a port; None if something does."""

NAME, SHELL, BROWSER = "code_interpreter", "shell", "web_search"
MCP = "mcp"
PAGE = "see docs/tools.md"
KERNEL = "Linux 5.13 or newer with Landlock, on x86_64 or aarch64"
REACH = "code reads its interpreter's libraries, writes its own directory, and has no network"

COMMANDS_REACH = (
    "commands run the system's programs, write their own directory, and have no network"
)


def python_tool_check(settings: Settings, landlock_abi: Callable[[], int] = landlock_abi) -> Check:
    """Whether this machine can sandbox the model's code."""
    mode = ToolSettings.of(settings).python
    if mode == "unboxed":
        return Check(
            NAME,
            "note",
            "switched on WITHOUT A BOX: code has all rights of the server",
            "set TRT_RESPONSES_PYTHON to 'boxed'",
        )
    return _sandbox(NAME, settings, mode, "code", REACH, landlock_abi)


def shell_tool_check(settings: Settings, landlock_abi: Callable[[], int] = landlock_abi) -> Check:
    """Whether this machine can sandbox commands."""
    mode = ToolSettings.of(settings).shell
    return _sandbox(SHELL, settings, mode, "commands", COMMANDS_REACH, landlock_abi)


def _sandbox(
    name: str,
    settings: Settings,
    mode: str,
    what: str,
    reach: str,
    landlock_abi: Callable[[], int],
) -> Check:
    switched = f"switched {'off' if mode == 'off' else 'on'}"
    try:
        abi = landlock_abi()
        if mode != "off":
            containers(settings)
    except StartupError as fault:
        return Check(name, "fault", str(fault), PAGE)
    except NoBox as fault:
        state: State = "fault" if mode == "boxed" else "note"
        return Check(name, state, f"{switched}; {what} cannot be sandboxed: {fault}", KERNEL)
    return Check(name, "ok", f"{switched}; Landlock {abi} and seccomp: {reach}")


def browser_tool_check(
    settings: Settings,
    landlock_abi: Callable[[], int] = landlock_abi,
    why_not: Reachable = why_not,
) -> Check:
    """The search service, and whether it listens; the check sends no search."""
    chosen = ToolSettings.of(settings)
    if chosen.browser == "off":
        return Check(BROWSER, "ok", "switched off")
    try:
        browser_tool(settings)
        name, url = search_service(settings)
        host, port = _address(url)
        abi = landlock_abi() if chosen.browser == "boxed" else None
    except StartupError as fault:
        return Check(BROWSER, "fault", str(fault), PAGE)
    except NoBox as fault:
        return Check(BROWSER, "fault", f"pages cannot be read in a box: {fault}", KERNEL)
    service = f"{name} at {host}:{port}"
    if (error := why_not(host, port)) is not None:
        remedy = "start it, or set TRT_RESPONSES_SEARCH_URL"
        return Check(BROWSER, "fault", f"cannot connect to {service} ({error})", remedy)
    reach = f"seen URLs at ports 80, 443, {_networks(settings)}"
    summary = f"{service} listens; the model may open {reach}"
    if abi is None:
        remedy = "set TRT_RESPONSES_BROWSER to 'boxed'"
        return Check(BROWSER, "note", f"pages are read WITHOUT A BOX; {summary}", remedy)
    return Check(BROWSER, "ok", f"{summary}; pages are read in a box (Landlock {abi} and seccomp)")


def _address(url: str) -> tuple[str, int]:
    """The host and port of a URL."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def mcp_tool_check(settings: Settings, why_not: Reachable = why_not) -> Check:
    """The configured MCP servers, and whether each is reachable. The check calls and starts
    none."""
    chosen = ToolSettings.of(settings)
    if chosen.mcp_servers is None and not chosen.mcp_urls:
        return Check(MCP, "ok", "switched off: no servers are configured, and requests name none")
    try:
        servers, places = mcp_servers(settings)
        mcp_tool(settings)
    except StartupError as fault:
        return Check(MCP, "fault", str(fault), PAGE)
    unreachable = [
        f"{name}: {why}"
        for name, one in servers.items()
        if (why := _unreachable(one.address, one.program, why_not))
    ]
    configured = ", ".join(sorted(servers)) or "none"
    prefixes = (
        ", ".join(f"{at.scheme}://{at.host}:{at.port}{at.path}" for at in places) or "nowhere"
    )
    summary = (
        f"configured servers: {configured}; requests may name servers below: {prefixes}; "
        f"{_networks(settings)}"
    )
    if unreachable:
        remedy = "responses that offer them report a failed tool list and continue"
        return Check(MCP, "note", f"{summary}. Unreachable: {'; '.join(unreachable)}", remedy)
    return Check(MCP, "ok", summary)


def _unreachable(
    address: tuple[str, int] | None, program: str | None, why_not: Reachable
) -> str | None:
    """Why a server is unreachable, as far as a check without a call can tell; else None."""
    if address is not None:
        return why_not(*address)
    return None if shutil.which(program or "") else f"program '{program}' not found"


def _networks(settings: Settings) -> str:
    networks = ", ".join(ToolSettings.of(settings).private_networks)
    return f"networks besides public addresses: {networks or 'none'}"
