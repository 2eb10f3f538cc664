"""A record at rest in a file or on another server: packed, and sealed against damage.

Knows bytes; knows no database. What was changed on the way is an error, never a wrong answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trt_responses.errors import ApiError
from trt_responses.store.base import Block, Record
from trt_responses.store.blocks import (
    UNPACKED_AT_ONCE,
    Packed,
    all_packed,
    apart,
    own_items,
    pack,
    unpack,
)
from trt_responses.store.squeeze import LARGE_BYTES, gently, squeeze_body, stretch_body

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SEAL_BYTES = 16


@dataclass(frozen=True, slots=True)
class Row:
    """All of a record but its blocks' content."""

    id: str
    owner: str
    body: bytes
    """Compressed."""
    prior_count: int
    input_count: int
    continuable: bool
    date: str
    created_at: int

    def seal(self, digests: Iterable[bytes]) -> bytes:
        """Of everything in it, and of its blocks in their order."""
        counts = (self.prior_count, self.input_count, int(self.continuable), self.created_at)
        head = repr((self.id, self.owner, self.date, *counts, len(self.body)))
        sealed = hashlib.blake2b(head.encode("utf-8", "surrogatepass"), digest_size=SEAL_BYTES)
        sealed.update(self.body)
        for digest in digests:
            sealed.update(digest)
        return sealed.digest()


@dataclass(frozen=True, slots=True)
class AtRest:
    """A record on its way to be kept."""

    row: Row
    packed: Sequence[Packed]
    """Without data, when the store is thought to have it."""
    blocks: Sequence[Block]

    @property
    def digests(self) -> list[bytes]:
        return [each.digest for each in self.packed]

    @property
    def seal(self) -> bytes:
        return self.row.seal(self.digests)

    def data(self, place: int) -> bytes:
        """A block's data, whether or not the store was thought to have it."""
        return self.packed[place].data or pack(self.blocks[place]).data


async def at_rest(record: Record) -> AtRest:
    """What has a digest, because it came from a store or was asked before, is not packed unless the
    store turns out not to have it."""
    body, asked = apart(record.body)
    row = Row(
        record.id,
        record.owner,
        await gently(squeeze_body, body, own_items(record.blocks, record.own_from)),
        record.prior_count,
        record.input_count,
        record.continuable,
        record.date,
        record.created_at,
    )
    blocks = (*record.blocks, asked)
    return AtRest(row, await all_packed(blocks, named=lambda digest: True), blocks)


def whole(row: Row, blocks: Sequence[Block], seal: bytes) -> Record:
    """The record as it was put, or an error."""
    if row.seal(block.digest for block in blocks) != seal:
        raise damaged(row.id)
    *blocks, asked = blocks
    return Record(
        row.id,
        row.owner,
        stretch_body(row.body, own_items(blocks, row.prior_count + row.input_count)) + asked.item,
        tuple(blocks),
        row.prior_count,
        row.input_count,
        row.continuable,
        row.date,
        row.created_at,
    )


def checked(packed: Packed, response_id: str) -> Block:
    """A block whose content has the digest that it is named by."""
    try:
        return unpack(packed, check=True)
    except (ValueError, zlib.error):
        raise damaged(response_id) from None


def damaged(response_id: str) -> ApiError:
    return ApiError(f"What is stored of response '{response_id}' is damaged and cannot be read.")


async def all_checked(packed: Iterable[Packed], response_id: str) -> list[Block]:
    """Each block, checked; with pauses, and a large one in a thread."""
    blocks = list[Block]()
    for each in packed:
        if len(each.data) > LARGE_BYTES:
            blocks.append(await asyncio.to_thread(checked, each, response_id))
        else:
            blocks.append(checked(each, response_id))
        if len(blocks) % UNPACKED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return blocks
