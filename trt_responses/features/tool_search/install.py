"""Searches for deferred tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.hosted_tools.hosted_calls import ROWS
from trt_responses.features.tool_search.calls import ROW, SearchCall
from trt_responses.features.tool_search.feature import ToolSearch
from trt_responses.features.tool_search.items import ACTION, ITEMS, NAME
from trt_responses.log.action_calls import ACTIONS
from trt_responses.log.item_events import CALLS
from trt_responses.wire.past_calls import KINDS

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    KINDS.update(ITEMS)
    ACTIONS[NAME] = ACTION
    CALLS[NAME] = SearchCall
    ROWS[NAME] = ROW
    server.features.append(ToolSearch(server.settings.mcp_tools))
