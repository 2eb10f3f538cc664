"""Records in storage form, for a file or another server: packed, with a checksum (seal).

Works on bytes: no database. Changed data raises an error and never gives a wrong answer.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trt_responses.errors import ApiError
from trt_responses.store import Block, Record
from trt_responses.stores.at_rest.blocks import (
    Packed,
    all_packed,
    has_none,
    is_digest,
    own_items,
    pack,
    split_body,
    unpack,
)
from trt_responses.stores.at_rest.compress import gently, leave_out, put_back
from trt_responses.stores.whole import Spell

SEAL_BYTES = 16


@dataclass(frozen=True, slots=True)
class AtRest:
    """A record ready for storage."""

    row: Record
    """The record with its body compressed, and without blocks."""
    packed: Sequence[Packed]
    """The blocks; without data if the store probably has them."""
    blocks: Sequence[Block]
    spell: Spell

    @property
    def digests(self) -> list[bytes]:
        return [each.digest for each in self.packed]

    @property
    def seal(self) -> bytes:
        return seal_of(self.row, self.digests)

    def data(self, place: int) -> bytes:
        """A block's data, packed on demand."""
        return self.packed[place].data or pack(self.blocks[place], spell=self.spell).data


async def at_rest(record: Record, spell: Spell) -> AtRest:
    """A record packed for storage. A block with a digest comes from a store; it is packed only if
    the store turns out not to have it."""
    body, request = split_body(record.body)
    body = await gently(leave_out, body, own_items(record.blocks, record.own_from))
    blocks = (*record.blocks, request)
    packed = await all_packed(blocks, has_none, spell, named=is_digest)
    return AtRest(replace(record, body=body, blocks=()), packed, blocks, spell)


def row_of(id: str, owner: str, body: bytes, *fields: Any) -> Record:
    """A row from its values, in a record's order."""
    return Record(id, owner, body, (), *fields)


def seal_of(row: Record, digests: Iterable[bytes]) -> bytes:
    """A digest of a whole row and of its blocks' digests in order."""
    counts = (row.prior_count, row.input_count, int(row.continuable), row.created_at)
    version = (row.version,) if row.version else ()
    named = (row.vocabulary,) if row.vocabulary else ()  # older records have no vocabulary
    head = repr((row.id, row.owner, row.date, *counts, *version, len(row.body), *named))
    sealed = hashlib.blake2b(head.encode("utf-8", "surrogatepass"), digest_size=SEAL_BYTES)
    sealed.update(row.body)
    for digest in digests:
        sealed.update(digest)
    return sealed.digest()


def whole(row: Record, blocks: Sequence[Block], seal: bytes) -> Record:
    """The original record. Raises an error if anything was changed."""
    if seal_of(row, (block.digest for block in blocks)) != seal:
        raise damaged(row.id)
    *blocks, request = blocks
    body = put_back(row.body, own_items(blocks, row.own_from)) + request.item
    return replace(row, body=body, blocks=tuple(blocks))


def checked(packed: Packed, response_id: str, spell: Spell) -> Block:
    """The unpacked block. Raises an error if its content does not match its digest."""
    try:
        return unpack(packed, spell, check=True)
    except (ValueError, zlib.error):
        raise damaged(response_id) from None


def damaged(response_id: str) -> ApiError:
    """The error for a damaged record."""
    return ApiError(f"The stored response '{response_id}' is damaged and cannot be read.")
