"""Tools that the server runs: whether code can be shut in here, and which MCP servers there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses import backends
from trt_responses.doctor.check import Check
from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.doctor.check import State
    from trt_responses.settings import Settings

NAME, SHELL = "code_interpreter", "shell"
MCP = "mcp"
REACH = "code reads its interpreter's libraries, writes its own directory, and has no network"

COMMANDS_REACH = (
    "commands run the system's programs, write their own directory, and have no network"
)
REMEDY = "Linux 5.13 or newer with Landlock, on x86_64 or aarch64"


def python_tool_check(
    settings: Settings, landlock_abi: Callable[[], int] = backends.landlock_abi
) -> Check:
    switched = f"switched {'off' if settings.python == 'off' else 'on'}"
    if settings.python == "unboxed":
        return Check(
            NAME,
            "note",
            "switched on WITHOUT A BOX: code has all rights of the server",
            "set TRT_RESPONSES_PYTHON to 'boxed'",
        )
    try:
        abi = landlock_abi()
    except backends.NoBox as fault:
        state: State = "fault" if settings.python == "boxed" else "note"
        return Check(NAME, state, f"{switched}; code cannot be shut in: {fault}", REMEDY)
    return Check(NAME, "ok", f"{switched}; Landlock {abi} and seccomp: {REACH}")


def shell_tool_check(
    settings: Settings, landlock_abi: Callable[[], int] = backends.landlock_abi
) -> Check:
    switched = f"switched {settings.shell.replace('boxed', 'on')}"
    try:
        abi = landlock_abi()
    except backends.NoBox as fault:
        state: State = "fault" if settings.shell == "boxed" else "note"
        return Check(SHELL, state, f"{switched}; commands cannot be shut in: {fault}", REMEDY)
    return Check(SHELL, "ok", f"{switched}; Landlock {abi} and seccomp: {COMMANDS_REACH}")


def mcp_tool_check(settings: Settings) -> Check:
    """What MCP servers there are. None is asked: that is for those who use it."""
    if settings.mcp_servers is None and not settings.mcp_urls:
        return Check(MCP, "ok", "switched off: no servers are configured, and requests name none")
    try:
        servers, places = backends.mcp_servers(settings)
        backends.mcp_tool(settings)
    except StartupError as fault:
        return Check(MCP, "fault", str(fault), "docs/tools.md says what it takes")
    ours = ", ".join(sorted(servers)) or "none"
    theirs = ", ".join(f"{at.scheme}://{at.host}:{at.port}{at.path}" for at in places) or "nowhere"
    networks = ", ".join(settings.private_networks) or "none"
    return Check(
        MCP,
        "ok",
        f"servers here: {ours}; requests may name servers below: {theirs}; networks besides public "
        f"addresses: {networks}",
    )
