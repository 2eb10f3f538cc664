"""Looks up the items that a request refers to, and gives sealed turns their own ids.

The items go on to be rendered as any others, at their own places; afterwards those whose ids are
known get them. Knows blocks and records; knows no HTTP and no concrete store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

import orjson
from pydantic import TypeAdapter

from trt_responses.errors import InvalidRequest
from trt_responses.features.references.digest import digest
from trt_responses.features.references.sealed import OpenedTurns
from trt_responses.frozen import dataclass
from trt_responses.prompt.carrier import RequestItems
from trt_responses.prompt.conversation import joined
from trt_responses.run.parts import NUMBER_CHARS
from trt_responses.store import Block, Record
from trt_responses.wire import items as i
from trt_responses.wire.past_calls import PastCall, PlainPastCall

ITEM: TypeAdapter[i.InputItem] = TypeAdapter(i.InputItem)

AT_ONCE = 500
"""The items that are compared with a client's carried turns between two pauses: some
milliseconds."""


def response_of(item_id: str) -> str:
    """The id of the response that an item is of. A signature stands in the item's id behind a
    dot."""
    return f"resp_{item_id.partition('_')[2].partition('.')[0][:-NUMBER_CHARS]}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Items without references, and what is known of them."""

    items: Sequence[i.InputItem]
    found: Mapping[int, Block] = field(default_factory=dict)
    """The blocks of the items that were referred to, by their places."""
    standing: frozenset[int] = frozenset()
    """The places of items that the conversation holds already: they are not repeated."""

    async def blocks(
        self,
        rendered: Sequence[Block],
        turns: OpenedTurns | None,
        pause: Callable[[], Awaitable[None]],
    ) -> list[Block]:
        """The items' blocks, with the ids that were generated, where those are known."""
        exact = []
        answered: set[str] = set()
        for place, block in enumerate(rendered):
            if (place + 1) % AT_ONCE == 0:
                await pause()
            if place in self.standing:
                continue
            item = self.items[place]
            if place in self.found:
                exact.append(self.found[place])
            elif turns is not None and (ids := turns.ids_at(place, item)) is not None:
                kind = block.kind
                if isinstance(item, PastCall) and item.ran_here:
                    kind = "reasoning"  # it leaves the prompt with the thought that it ran within
                    if item.inner_call:
                        answered.add(item.inner_call)
                exact.append(replace(block, ids=ids, kind=kind))
            elif isinstance(item, PastCall) and item.answered_call in answered:
                # It says what stands behind the ids of its call already.
                exact.append(replace(block, ids=b"", kind="preamble"))
            else:
                exact.append(block)
        return exact


class _Stored(NamedTuple):
    """An item of a stored response, and whether its ids are of this model's vocabulary."""

    block: Block
    is_ours: bool


async def resolved(items: Sequence[i.SentItem], given: RequestItems) -> Resolved:
    """The items of the request, with those that it refers to: items of the conversation, or of a
    stored response. The latter bring their ids if they are of this vocabulary."""
    plain: list[i.InputItem] = [item for item in items if not isinstance(item, i.ItemReference)]
    prior = given.prior
    if len(plain) == len(items) and not (prior and any(item.id for item in plain)):
        return Resolved(plain)
    plain.clear()
    here = {_id(block): block for block in prior}
    stored: dict[str, Mapping[str, _Stored]] = {}
    found: dict[int, Block] = {}
    standing: set[int] = set()
    for place, item in enumerate(items):
        if not isinstance(item, i.ItemReference):
            plain.append(item)
            if item.id in here and _repeats(item, here[item.id]):
                standing.add(place)
            continue
        if item.id in here:
            block = here[item.id]
            standing.add(place)
        else:
            block, is_ours = await _stored(item.id, stored, given, place)
            if is_ours:
                found[place] = block
        plain.append(ITEM.validate_json(block.item))
    return Resolved(plain, found, frozenset(standing))


def _repeats(item: i.InputItem, block: Block) -> bool:
    """Whether a client has sent an item again that the conversation holds."""
    held = ITEM.validate_json(block.item)
    if (hashed := digest(item)) is not None:
        return hashed == digest(held)
    return _words(item) == _words(held)


def _words(item: i.InputItem) -> Mapping[str, object]:
    """The words of an item, in either form of its text."""
    match item:
        case i.InputMessage():
            return {"role": item.role, "text": joined(item.content)}
        case i.FunctionCallOutput():
            return {"call_id": item.call_id, "text": joined(item.output)}
        case PlainPastCall():
            text = item.text()
            return {"call_id": text.call_id, "text": text.result}
        case _:
            return item.model_dump(exclude={"id", "status"}, exclude_none=True)


async def _stored(
    item_id: str,
    stored: dict[str, Mapping[str, _Stored]],
    given: RequestItems,
    place: int,
) -> _Stored:
    response_id = response_of(item_id)
    if response_id not in stored:
        record = await given.records.get(response_id, given.owner)
        own = _own(record, given.dialect.vocabulary) if isinstance(record, Record) else {}
        stored[response_id] = own
    found = stored[response_id].get(item_id)
    if found is None:
        raise InvalidRequest(
            f"Item with id '{item_id:.100}' not found: no stored response of yours gave it. Send "
            "the item itself.",
            status=404,
            param=f"{given.place(place)}.id",
            code="item_not_found",
        )
    return found


def _own(record: Record, vocabulary: str) -> Mapping[str, _Stored]:
    """A response's own items by their ids."""
    is_ours = record.vocabulary == vocabulary
    return {_id(block): _Stored(block, is_ours) for block in record.blocks[record.own_from :]}


def _id(block: Block) -> str:
    item_id: str = orjson.loads(block.item).get("id", "")
    return item_id
