"""Tools and settings that come with a conversation's items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.input_settings.items import ITEMS
from trt_responses.wire.past_calls import KINDS

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    KINDS.update(ITEMS)
