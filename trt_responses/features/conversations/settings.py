"""The settings of `features/conversations/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import FixedGroup


class ConversationNumbers(FixedGroup):
    """Bounds of a conversation."""

    conversation_items: int = Field(10_000, description="As many as one request's input may have.")
