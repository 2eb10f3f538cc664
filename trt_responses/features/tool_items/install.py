"""Items of tools that others ran, as a conversation's history, and calls of custom tools."""

from __future__ import annotations

from trt_responses.features.tool_items.custom_calls import CustomCall
from trt_responses.features.tool_items.items import ITEMS
from trt_responses.log.item_events import CALLS
from trt_responses.setup.server import Server
from trt_responses.wire.past_calls import KINDS


def install(server: Server) -> None:
    KINDS.update(ITEMS)
    CALLS["custom"] = CustomCall
