"""The loop of the tools that run here, and their list in `/v1/models`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from trt_responses.features.hosted_tools.feature import HostedTools
from trt_responses.features.hosted_tools.tools import CHOICES as HOSTED_CHOICES
from trt_responses.features.hosted_tools.tools import TOOLS as HOSTED
from trt_responses.setup.server import Server
from trt_responses.tool import Tool
from trt_responses.wire.choice import CHOICES
from trt_responses.wire.tools import TOOLS

PLACES: Mapping[str, Mapping[str, Any]] = {
    "code_interpreter": {"container": {"type": "auto"}},
    "shell": {"environment": {"type": "container_auto"}},
}
"""The fields without which a request cannot use a tool."""


@runtime_checkable
class HasServers(Protocol):
    """A tool whose requests name one of several servers by its label."""

    servers: Mapping[str, object]


def install(server: Server) -> None:
    TOOLS.update(HOSTED)
    CHOICES.update(HOSTED_CHOICES)
    tools = {tool.kind: tool for tool in server.tools}
    server.features.append(HostedTools(tools, server.store, server.sealing))
    if offered := [one for tool in tools.values() for one in offers_of(tool)]:
        server.model_facts["tools"] = offered


def offers_of(tool: Tool) -> Iterable[Mapping[str, Any]]:
    """The entries with which a request's `tools` can switch the tool on."""
    if isinstance(tool, HasServers):
        return [{"type": tool.kind, "server_label": label} for label in tool.servers]
    return [{"type": tool.kind, **PLACES.get(tool.kind, {})}]
