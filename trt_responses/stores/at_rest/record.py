"""A record at rest in a file or on another server: packed, and sealed against damage.

Knows bytes; knows no database. What was changed on the way is an error, never a wrong answer.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trt_responses.errors import ApiError
from trt_responses.store import Block, Record
from trt_responses.stores.at_rest.blocks import (
    Packed,
    all_packed,
    apart,
    has_none,
    own_items,
    pack,
    unpack,
)
from trt_responses.stores.at_rest.compress import gently, leave_out, put_back

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trt_responses.store import Spell

SEAL_BYTES = 16


@dataclass(frozen=True, slots=True)
class Row:
    """All of a record but its blocks' content."""

    id: str
    owner: str
    body: bytes
    """The body, compressed."""
    prior_count: int
    input_count: int
    continuable: bool
    date: str
    created_at: int
    version: int = 0
    vocabulary: str = ""

    def seal(self, digests: Iterable[bytes]) -> bytes:
        """A digest of everything in the row, and of its blocks in their order."""
        counts: tuple[int, ...] = (
            self.prior_count,
            self.input_count,
            int(self.continuable),
            self.created_at,
        )
        if self.version:
            counts += (self.version,)
        named = (self.vocabulary,) if self.vocabulary else ()  # older records have none
        head = repr((self.id, self.owner, self.date, *counts, len(self.body), *named))
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
    """The blocks; without data, when the store is thought to have them."""
    blocks: Sequence[Block]
    spell: Spell

    @property
    def digests(self) -> list[bytes]:
        return [each.digest for each in self.packed]

    @property
    def seal(self) -> bytes:
        return self.row.seal(self.digests)

    def data(self, place: int) -> bytes:
        """A block's data, whether or not the store was thought to have it."""
        return self.packed[place].data or pack(self.blocks[place], spell=self.spell).data


async def at_rest(record: Record, spell: Spell) -> AtRest:
    """A record packed to be kept. A block that has a digest, because it came from a store or was
    asked before, is not packed unless the store turns out not to have it."""
    body, asked = apart(record.body)
    row = Row(
        record.id,
        record.owner,
        await gently(leave_out, body, own_items(record.blocks, record.own_from)),
        record.prior_count,
        record.input_count,
        record.continuable,
        record.date,
        record.created_at,
        record.version,
        record.vocabulary,
    )
    blocks = (*record.blocks, asked)
    packed = await all_packed(blocks, has_none, spell, named=lambda digest: True)
    return AtRest(row, packed, blocks, spell)


def whole(row: Row, blocks: Sequence[Block], seal: bytes) -> Record:
    """The record as it was put. Raises an error when anything has changed on the way."""
    if row.seal(block.digest for block in blocks) != seal:
        raise damaged(row.id)
    *blocks, asked = blocks
    return Record(
        row.id,
        row.owner,
        put_back(row.body, own_items(blocks, row.prior_count + row.input_count)) + asked.item,
        tuple(blocks),
        row.prior_count,
        row.input_count,
        row.continuable,
        row.date,
        row.created_at,
        row.version,
        row.vocabulary,
    )


def checked(packed: Packed, response_id: str, spell: Spell) -> Block:
    """A block whose content has the digest that it is named by. Raises an error for any other."""
    try:
        return unpack(packed, spell, check=True)
    except (ValueError, zlib.error):
        raise damaged(response_id) from None


def damaged(response_id: str) -> ApiError:
    """The error of a record that was changed on the way."""
    return ApiError(f"What is stored of response '{response_id}' is damaged and cannot be read.")
