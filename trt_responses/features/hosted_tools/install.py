"""The loop of the tools that run here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.hosted_tools.approvals import Ledger
from trt_responses.features.hosted_tools.feature import HostedTools

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    tools = {tool.kind: tool for tool in server.tools}
    server.features.append(HostedTools(tools, Ledger(server.store), server.sealing))
