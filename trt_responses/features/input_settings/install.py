"""Tools and settings that come with a conversation's items."""

from __future__ import annotations

from trt_responses.features.input_settings.items import ITEMS
from trt_responses.setup.server import Server
from trt_responses.wire.past_calls import KINDS


def install(server: Server) -> None:
    KINDS.update(ITEMS)
