"""Blocks at rest: named by their content, and packed with pauses; and what of a body they hold.

Knows blocks, and how a record's body is ordered; knows no store. Whoever waits here never holds the
event loop for long: small blocks are packed in slices with a pause between, a large one in a
thread.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, get_args

from trt_responses.store.base import Block, Kind
from trt_responses.store.squeeze import LARGE_BYTES, NOWHERE, squeeze, stretch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Has = Callable[[bytes], bool]
    """Whether a store holds the block of a digest."""

UNPACKED_AT_ONCE = 200
"""Blocks between two pauses; about a millisecond too."""
DIGEST_BYTES = 20

KINDS: tuple[Kind, ...] = get_args(Kind)
NUMBERS: Mapping[Kind, int] = {kind: number for number, kind in enumerate(KINDS)}
HEAD = Struct("<Biii")
"""The kind, then the lengths of call id, callee and item. The ids are what is left."""
ABSENT = -1
"""The length of a name that is None; "" is 0 long."""

LOW = Struct("<i")
"""Before a block: how many bytes of its ids stand apart, since nothing makes them smaller."""

ASKED_FROM = b',"background":'
"""Where a body begins to repeat what was asked: instructions, tools, and all that is echoed."""


class Packed(NamedTuple):
    """A block at rest; without data, when the store has it."""

    digest: bytes
    data: bytes


def has_none(digest: bytes) -> bool:
    return False


def pack(block: Block, has: Has = has_none) -> Packed:
    raw, low = _raw(block)
    digest = block.digest or _digest(raw, low)
    if has(digest):
        return Packed(digest, b"")
    return Packed(digest, LOW.pack(len(low)) + low + squeeze(raw))


def unpack(packed: Packed, *, check: bool = False) -> Block:
    """The block; with a check, a `ValueError` when its content is not what its digest names."""
    data = packed.data
    if len(data) < LOW.size or (after := LOW.size + LOW.unpack_from(data)[0]) < LOW.size:
        raise ValueError("it is cut short")
    low, raw = data[LOW.size : after], stretch(data[after:])
    if check and _digest(raw, low) != packed.digest:
        raise ValueError("the content has another digest")
    kind, *lengths = HEAD.unpack_from(raw)
    at, parts = HEAD.size, list[bytes | None]()
    for length in lengths:
        parts.append(None if length < 0 else raw[at : at + length])
        at += max(0, length)
    call_id, callee, item = parts
    return Block(
        KINDS[kind],
        item or b"",
        _together(low + raw[at:]),
        _text(call_id),
        _text(callee),
        digest=packed.digest,
    )


def own_items(blocks: Sequence[Block], before: int) -> bytes:
    """What a response's body repeats: its own output, which its record's last blocks hold too."""
    return b",".join([block.item for block in blocks[before:]])


def apart(body: bytes) -> tuple[bytes, Block]:
    """A body's own part, and what was asked. The responses of one client repeat that, with all its
    tools: as a block it is kept once."""
    at = body.find(ASKED_FROM)
    at = len(body) if at == NOWHERE else at
    own, asked = body[:at], body[at:]
    return own, _asked(asked) if len(asked) < LARGE_BYTES else Block("asked", asked, b"")


@lru_cache(maxsize=16)
def _asked(item: bytes) -> Block:
    block = Block("asked", item, b"")
    return replace(block, digest=_digest(*_raw(block)))


async def all_packed(
    blocks: Iterable[Block], has: Has = has_none, *, named: Has | None = None
) -> list[Packed]:
    """Each block packed; of one that the store has only the digest. `named` is asked instead for
    those that have a digest already."""
    named = named or has
    packed, since = list[Packed](), 0
    for block in blocks:
        if block.digest and named(block.digest):
            packed.append(Packed(block.digest, b""))
            since += 64
        elif (size := len(block.item) + len(block.ids)) > LARGE_BYTES:
            packed.append(await asyncio.to_thread(pack, block, has))
        else:
            packed.append(pack(block, has))
            since += size + 512
        if since > LARGE_BYTES:
            await asyncio.sleep(0)
            since = 0
    return packed


async def all_unpacked(packed: Sequence[Packed]) -> tuple[Block, ...]:
    blocks = list[Block]()
    for place, each in enumerate(packed, 1):
        large = len(each.data) > LARGE_BYTES
        blocks.append(await asyncio.to_thread(unpack, each) if large else unpack(each))
        if place % UNPACKED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return tuple(blocks)


def _raw(block: Block) -> tuple[bytes, bytes]:
    """All of a block but the low bytes of its ids, and those.

    Of the ids come all first bytes, then all second ones, and so on: alike stands by alike.
    """
    call_id, callee, item, ids = block.call_id, block.callee, block.item, block.ids
    kind = NUMBERS[block.kind]
    if call_id is None and callee is None:
        head = HEAD.pack(kind, ABSENT, ABSENT, len(item))
    else:
        names = [
            None if n is None else n.encode("utf-8", "surrogatepass") for n in (call_id, callee)
        ]
        lengths = (ABSENT if name is None else len(name) for name in names)
        head = HEAD.pack(kind, *lengths, len(item))
        head += b"".join(name or b"" for name in names)
    return b"".join((head, item, ids[2::4], ids[3::4])), ids[0::4] + ids[1::4]


def _together(rows: bytes) -> bytes:
    ids, at = bytearray(len(rows)), 0
    for place in range(4):
        count = len(ids[place::4])
        ids[place::4] = rows[at : at + count]
        at += count
    return bytes(ids)


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "surrogatepass")


def _digest(raw: bytes, low: bytes) -> bytes:
    digest = hashlib.blake2b(raw, digest_size=DIGEST_BYTES)
    digest.update(low)
    return digest.digest()
