"""Packs blocks for storage, named by their content, and splits off the parts of a body they repeat.

A block is stored without its text if its ids encode it and it is not large. Works on blocks and on
the order of a record's body: no store here. The event loop is never blocked for long: small blocks
are packed in slices with pauses, a large one in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, get_args

from trt_responses.store import Block, Kind
from trt_responses.stores.at_rest.compress import (
    LARGE_BYTES,
    NOWHERE,
    is_whole,
    leave_out,
    put_back,
    squeeze,
    stretch,
)
from trt_responses.stores.at_rest.id_rows import narrow_bytes, narrowed, rows, together, widened
from trt_responses.stores.at_rest.phrases import ITEMS
from trt_responses.stores.whole import Spell, says_nothing
from trt_responses.tasks import give_way

Has = Callable[[bytes], bool]
"""Whether a store has the block of a digest."""

BLOCK_BYTES = 512
"""Bytes of a large block that count as one small block."""
DIGEST_BYTES = 20

KINDS: tuple[Kind, ...] = get_args(Kind)
NUMBERS: Mapping[Kind, int] = {kind: number for number, kind in enumerate(KINDS)}
HEAD = Struct("<Biii")
"""The head of a block: its kind, then the lengths of call id, callee and item. The ids fill the
rest."""
ABSENT = -1
"""The length of a name that is None; the length of "" is 0."""

LOW = Struct("<i")
"""The head of a block with ids of more than 18 bits: the length of its ids' low rows."""
NARROW = Struct("<ii")
"""The head of any other block: the same length, marked by `~`, and the length of the rest of its
item."""

ECHO_FROM = b',"background":'
"""The start of a body's echo of its request: instructions, tools, and all other echoed fields."""


def is_digest(name: bytes) -> bool:
    """Whether a block's name is a digest; else it is empty, or the block itself."""
    return len(name) == DIGEST_BYTES


class Packed(NamedTuple):
    """A packed block; without data if the store has it."""

    digest: bytes
    data: bytes


def has_none(digest: bytes) -> bool:
    """False for every digest: an empty store."""
    return False


def pack(
    block: Block, has: Has = has_none, spell: Spell = says_nothing, *, whole_below: int = 0
) -> Packed:
    """The packed block; without its data if the store has it. A block of fewer bytes than
    `whole_below` is neither shortened nor hashed: it is its own name, for `whole_block`."""
    head, item, known = _head(block), block.item, is_digest(block.digest)
    if not known and len(item) + len(block.ids) < whole_below:
        name = b"".join((head, item, block.ids))
        return Packed(name, b"" if has(name) else name)
    low, high = rows(block.ids)
    digest = block.digest if known else _digest(b"".join((head, item, high, low)))
    if has(digest):
        return Packed(digest, b"")
    if (narrow := narrowed(high, len(low) // 2)) is None:
        rest = squeeze(b"".join((head, item, high)))
        return Packed(digest, b"".join((LOW.pack(len(low)), low, rest)))
    text = b"" if _is_large(block) else spell(block.ids)  # zlib releases the GIL, spelling does not
    left = leave_out(item, text, ITEMS.get(block.kind, ()))
    sizes = NARROW.pack(~len(low), len(left))
    return Packed(digest, b"".join((sizes, low, narrow, left, head)))


def unpack(packed: Packed, spell: Spell = says_nothing, *, check: bool = False) -> Block:
    """The block. With `check`, raises a `ValueError` if its content does not match its digest."""
    raw, low = _stretched(packed.data, spell)
    if check and _digest(raw + low) != packed.digest:
        raise ValueError("the content has another digest")
    kind, item, call_id, callee, high = _parts(raw)
    return Block(kind, item, together(low, high), call_id, callee, packed.digest)


def whole_block(name: bytes) -> Block:
    """The block that is its own name."""
    kind, item, call_id, callee, ids = _parts(name)
    return Block(kind, item, ids, call_id, callee, name)


def _parts(raw: bytes) -> tuple[Kind, bytes, str | None, str | None, bytes]:
    """A block's kind, item, call id and callee, and the bytes behind them."""
    kind, *lengths = HEAD.unpack_from(raw)
    at, parts = HEAD.size, list[bytes | None]()
    for length in lengths:
        parts.append(None if length < 0 else raw[at : at + length])
        at += max(0, length)
    call_id, callee, item = parts
    return KINDS[kind], item or b"", _text(call_id), _text(callee), raw[at:]


def _stretched(data: bytes, spell: Spell) -> tuple[bytes, bytes]:
    """A block's bytes without its ids' low rows, and the low rows."""
    if len(data) < NARROW.size:
        raise ValueError("it is truncated")
    size, left = NARROW.unpack_from(data)
    if size >= 0:
        at = LOW.size + size
        return stretch(data[at:]), data[LOW.size : at]
    count = ~size // 2
    high_at = NARROW.size + ~size
    item_at = high_at + narrow_bytes(count)
    head_at = item_at + left
    if not item_at <= head_at <= len(data):
        raise ValueError("it is truncated")
    low, high = data[NARROW.size : high_at], widened(data[high_at:item_at], count)
    rest = data[item_at:head_at]
    item = put_back(rest, b"" if is_whole(rest) else spell(together(low, high)))
    return b"".join((data[head_at:], item, high)), low


def own_items(blocks: Sequence[Block], before: int) -> bytes:
    """The output in a response's body, which its record's last blocks contain too."""
    return b",".join([block.item for block in blocks[before:]])


def split_body(body: bytes) -> tuple[bytes, Block]:
    """A body's own part, and its echo of the request as a block. The responses of one client repeat
    that echo, with all tools; as a block it is stored once."""
    at = body.find(ECHO_FROM)
    at = len(body) if at == NOWHERE else at
    own, echo = body[:at], body[at:]
    return own, _echo_block(echo) if len(echo) < LARGE_BYTES else Block("request", echo, b"")


@lru_cache(maxsize=16)
def _echo_block(item: bytes) -> Block:
    block = Block("request", item, b"")
    return replace(block, digest=_digest(_head(block) + item))


async def all_packed(
    blocks: Iterable[Block],
    has: Has,
    spell: Spell,
    *,
    named: Has | None = None,
    whole_below: int = 0,
) -> list[Packed]:
    """The packed blocks, as by `pack`; one that the store has is its digest alone. `named` replaces
    `has` for blocks that have a digest already."""
    named = named or has
    packed, since = list[Packed](), 0
    for block in blocks:
        if block.digest and named(block.digest):
            packed.append(Packed(block.digest, b""))
            since += 64
        elif _is_large(block):
            packed.append(await asyncio.to_thread(pack, block, has, spell))
        else:
            packed.append(pack(block, has, spell, whole_below=whole_below))
            since += len(block.item) + len(block.ids) + BLOCK_BYTES
        if since > LARGE_BYTES:
            await give_way()
            since = 0
    return packed


def _is_large(block: Block) -> bool:
    return len(block.item) + len(block.ids) > LARGE_BYTES


async def all_unpacked(
    packed: Iterable[Packed], unpacked: Callable[[Packed], Block]
) -> list[Block]:
    """The unpacked blocks, in order."""
    blocks, since = list[Block](), 0
    for each in packed:
        if (size := len(each.data)) > LARGE_BYTES:
            blocks.append(await asyncio.to_thread(unpacked, each))
        else:
            blocks.append(unpacked(each))
            since += size + BLOCK_BYTES
        if since > LARGE_BYTES:
            await give_way()
            since = 0
    return blocks


def _head(block: Block) -> bytes:
    """The bytes before a block's item and ids."""
    call_id, callee, length = block.call_id, block.callee, len(block.item)
    kind = NUMBERS[block.kind]
    if call_id is None and callee is None:
        return HEAD.pack(kind, ABSENT, ABSENT, length)
    names = [None if n is None else n.encode("utf-8", "surrogatepass") for n in (call_id, callee)]
    lengths = (ABSENT if name is None else len(name) for name in names)
    return HEAD.pack(kind, *lengths, length) + b"".join(name or b"" for name in names)


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "surrogatepass")


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
