"""Searches for deferred tools."""

from __future__ import annotations

from trt_responses.backends.settings import McpNumbers
from trt_responses.features.hosted_tools.hosted_calls import ROWS
from trt_responses.features.tool_search.calls import ROW, SearchCall
from trt_responses.features.tool_search.feature import ToolSearch
from trt_responses.features.tool_search.items import ITEMS, NAME, ToolSearchTool
from trt_responses.log.item_events import CALLS
from trt_responses.setup.server import Server
from trt_responses.wire.past_calls import KINDS
from trt_responses.wire.tools import TOOLS


def install(server: Server) -> None:
    KINDS.update(ITEMS)
    TOOLS[NAME] = ToolSearchTool
    CALLS[NAME] = SearchCall
    ROWS[NAME] = ROW
    server.features.append(ToolSearch(McpNumbers.of(server.settings).mcp_tools))
