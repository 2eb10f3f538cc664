"""The bodies of `/v1/conversations` as types."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from trt_responses.wire.base import ListOf, Options
from trt_responses.wire.items import SentItem
from trt_responses.wire.request import Metadata

ITEMS_AT_ONCE = 20


def _null_is_empty(value: Any) -> Any:
    return [] if value is None else value


Items = Annotated[ListOf[SentItem], Field(max_length=ITEMS_AT_ONCE)]


class NewConversation(Options):
    """What begins a conversation."""

    items: Annotated[Items, BeforeValidator(_null_is_empty)] = Field(default_factory=list)
    metadata: Metadata | None = None


class ConversationChange(Options):
    """What a conversation's metadata is replaced by. It has to be there, and may be null."""

    metadata: Metadata | None


class NewItems(Options):
    """What is added to a conversation."""

    items: Items
