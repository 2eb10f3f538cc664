"""Records in storage form, for a file or another server: packed, with a checksum (seal).

Works on bytes: no database. Changed data raises an error and never gives a wrong answer.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
class Row:
    """A record without the content of its blocks."""

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
        """A digest of the whole row and of its blocks' digests in order."""
        counts: tuple[int, ...] = (
            self.prior_count,
            self.input_count,
            int(self.continuable),
            self.created_at,
        )
        if self.version:
            counts += (self.version,)
        named = (self.vocabulary,) if self.vocabulary else ()  # older records have no vocabulary
        head = repr((self.id, self.owner, self.date, *counts, len(self.body), *named))
        sealed = hashlib.blake2b(head.encode("utf-8", "surrogatepass"), digest_size=SEAL_BYTES)
        sealed.update(self.body)
        for digest in digests:
            sealed.update(digest)
        return sealed.digest()


@dataclass(frozen=True, slots=True)
class AtRest:
    """A record ready for storage."""

    row: Row
    packed: Sequence[Packed]
    """The blocks; without data if the store probably has them."""
    blocks: Sequence[Block]
    spell: Spell

    @property
    def digests(self) -> list[bytes]:
        return [each.digest for each in self.packed]

    @property
    def seal(self) -> bytes:
        return self.row.seal(self.digests)

    def data(self, place: int) -> bytes:
        """A block's data, packed on demand."""
        return self.packed[place].data or pack(self.blocks[place], spell=self.spell).data


async def at_rest(record: Record, spell: Spell) -> AtRest:
    """A record packed for storage. A block with a digest comes from a store; it is packed only if
    the store turns out not to have it."""
    body, request = split_body(record.body)
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
    blocks = (*record.blocks, request)
    packed = await all_packed(blocks, has_none, spell, named=is_digest)
    return AtRest(row, packed, blocks, spell)


def whole(row: Row, blocks: Sequence[Block], seal: bytes) -> Record:
    """The original record. Raises an error if anything was changed."""
    if row.seal(block.digest for block in blocks) != seal:
        raise damaged(row.id)
    *blocks, request = blocks
    return Record(
        row.id,
        row.owner,
        put_back(row.body, own_items(blocks, row.prior_count + row.input_count)) + request.item,
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
    """The unpacked block. Raises an error if its content does not match its digest."""
    try:
        return unpack(packed, spell, check=True)
    except (ValueError, zlib.error):
        raise damaged(response_id) from None


def damaged(response_id: str) -> ApiError:
    """The error for a damaged record."""
    return ApiError(f"The stored response '{response_id}' is damaged and cannot be read.")
