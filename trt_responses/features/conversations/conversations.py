"""Conversations that the server keeps: made, changed, and continued by responses.

A conversation is a record with versions; a writer names the version it has read. Knows blocks and
the store's seam; knows no HTTP and no concrete store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from trt_responses.accept.accepted import Accepted
from trt_responses.accept.responses import accept
from trt_responses.errors import InvalidRequest, NotFound, invalid_value
from trt_responses.features.conversations.locks import locked
from trt_responses.features.listing.listing import listed
from trt_responses.prompt.carrier import RequestItems
from trt_responses.prompt.history import spoken_here
from trt_responses.prompt.prompt import blocks_of
from trt_responses.run.parts import Parts
from trt_responses.store import Block, Expired, Record, Records
from trt_responses.stores.whole import whole_store
from trt_responses.wire.items import ItemPlace, SentItem
from trt_responses.wire.request import Request

Json = dict[str, Any]

PREFIX = "conv"


class Conversations:
    """What can be done with conversations besides making a response in one."""

    def __init__(self, parts: Parts, *, most_items: int) -> None:
        self._parts = parts
        self._store = whole_store(parts.store)
        self._most_items = most_items

    async def create(
        self, items: Sequence[SentItem], metadata: Mapping[str, str], owner: str
    ) -> Json:
        now = int(self._parts.clock_s())
        made: Json = {
            "id": self._parts.mint(PREFIX),
            "object": "conversation",
            "created_at": now,
            "metadata": dict(metadata),
        }
        body, vocabulary = orjson.dumps(made), self._parts.dialect.vocabulary
        empty = Record(made["id"], owner, body, (), 0, 0, True, "", now, vocabulary=vocabulary)
        await self._change(empty, blocks=await self._blocks(items, empty, owner))
        return made

    async def get(self, conversation_id: str, owner: str) -> Json:
        return _object(await conversation_of(conversation_id, self._store, owner))

    async def update(self, conversation_id: str, metadata: Mapping[str, str], owner: str) -> Json:
        record = await conversation_of(conversation_id, self._store, owner)
        changed = _object(record) | {"metadata": dict(metadata)}
        await self._change(replace(record, body=orjson.dumps(changed)))
        return changed

    async def delete(self, conversation_id: str, owner: str) -> None:
        """A response that is being made in it will find that it is gone."""
        await conversation_of(conversation_id, self._store, owner)
        await self._store.delete(conversation_id, owner)

    async def items(self, conversation_id: str, owner: str) -> list[Json]:
        """All of them, in their order."""
        record = await conversation_of(conversation_id, self._store, owner)
        return listed(record.blocks)

    async def add(self, conversation_id: str, items: Sequence[SentItem], owner: str) -> list[Json]:
        record = await conversation_of(conversation_id, self._store, owner)
        record = await spoken_here(record, self._parts)
        added = await self._blocks(items, record, owner)
        await self._change(record, blocks=(*record.blocks, *added))
        return listed((*record.blocks, *added))[len(record.blocks) :]

    async def remove(self, conversation_id: str, item_id: str, owner: str) -> Json:
        """The conversation without the item."""
        record = await conversation_of(conversation_id, self._store, owner)
        items = zip(record.blocks, listed(record.blocks), strict=True)
        left = tuple(block for block, item in items if item["id"] != item_id)
        if len(left) == len(record.blocks):
            raise no_item(item_id)
        await self._change(record, blocks=left)
        return _object(record)

    async def _blocks(
        self, items: Sequence[SentItem], record: Record, owner: str
    ) -> Sequence[Block]:
        parts = self._parts
        whose = (owner, parts.store, parts.dialect, parts.model)
        blocks, _ = await blocks_of(RequestItems(accept_items(items), record.blocks, *whose), parts)
        return blocks

    async def _change(self, record: Record, blocks: Sequence[Block] | None = None) -> None:
        now = int(self._parts.clock_s())
        blocks = record.blocks if blocks is None else blocks
        changed = grown(record, blocks, record.date, now, record.vocabulary)
        check_size(changed, self._most_items)
        if not await self._store.change(changed):
            raise locked()


async def conversation_of(conversation_id: str, records: Records, owner: str) -> Record:
    """The conversation of this id. Raises `NotFound` without one."""
    begins_so = conversation_id.startswith(f"{PREFIX}_")
    record = await records.get(conversation_id, owner) if begins_so else None
    if isinstance(record, Record) and record.version:
        return record
    expired = isinstance(record, Expired)
    why = "has expired, for its age or for want of room" if expired else "not found"
    raise NotFound(
        f"Conversation with id '{conversation_id:.100}' {why}.",
        param="conversation",
        code="conversation_expired" if expired else "not_found",
    )


def grown(
    record: Record, blocks: Sequence[Block], date: str, now_s: int, vocabulary: str
) -> Record:
    """The next version, with these items. Its age counts from now on."""
    return replace(
        record,
        blocks=tuple(blocks),
        prior_count=len(blocks),
        input_count=0,
        date=date,
        created_at=now_s,
        version=record.version + 1,
        vocabulary=vocabulary,
    )


def check_size(record: Record, most_items: int) -> None:
    """Raise when a conversation has too many items."""
    if len(record.blocks) > most_items:
        raise InvalidRequest(
            f"The conversation would have {len(record.blocks)} items, and at most {most_items} are "
            "kept: delete some, or begin another.",
            param="items",
            code="conversation_too_large",
        )


def no_item(item_id: str) -> NotFound:
    """The error of an item that is not in the conversation."""
    return NotFound(
        f"Item with id '{item_id:.100}' not found in this conversation.",
        param="item_id",
        code="not_found",
    )


def _object(record: Record) -> Json:
    body: Json = orjson.loads(record.body)
    return body


def accept_items(items: Sequence[SentItem]) -> Accepted:
    """Items for a conversation, without a response."""
    for place, item in enumerate(items):
        if item.type == "compaction_trigger":
            raise invalid_value(f"items[{place}]", "a compaction_trigger is no item to keep")
    places = [ItemPlace(f"items[{place}]") for place in range(len(items))]
    return replace(accept(Request(model="-", input=list(items))), places=places)
