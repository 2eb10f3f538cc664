"""Blocks and bodies at rest: compressed, named by their content, and packed with pauses.

Knows bytes; knows no store. Whoever waits here never holds the event loop for long: small things
are packed in slices with a pause between, a large one in a thread, where zlib lets go of the lock.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, get_args

from trt_responses.store.base import Block, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

LEVEL = 1
SMALL_BYTES = 768
"""Up to here as it is: zlib would take 20 to 50 µs to save a hundred bytes or two."""
LARGE_BYTES = 64 * 1024
"""About a millisecond of packing: what is larger goes to a thread."""
UNPACKED_AT_ONCE = 200
"""Blocks between two pauses; about a millisecond too."""
DIGEST_BYTES = 20

KINDS: tuple[Kind, ...] = get_args(Kind)
HEAD = Struct("<Biii")
"""The kind, then the lengths of call id, callee and item; -1 is None. The ids are what is left."""


REST = Struct("<?i")
"""Before what is left: whether it is compressed, and where something was taken out."""
NOWHERE = -1


class Packed(NamedTuple):
    """A block at rest."""

    digest: bytes
    data: bytes


def pack(block: Block) -> Packed:
    raw = _raw(block)
    return Packed(block.digest or _digest(raw), squeeze(raw))


def unpack(packed: Packed, *, check: bool = False) -> Block:
    """The block; with a check, a `ValueError` when its content is not what its digest names."""
    raw = stretch(packed.data)
    if check and _digest(raw) != packed.digest:
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
        _together(raw[at:]),
        _text(call_id),
        _text(callee),
        digest=packed.digest,
    )


def squeeze(data: bytes, like: bytes = b"") -> bytes:
    """Without `like`, which whoever stretches it has; and compressed, where that is worth it."""
    if (at := data.find(like) if like else NOWHERE) != NOWHERE:
        data = data[:at] + data[at + len(like) :]
    large = len(data) > SMALL_BYTES
    return REST.pack(large, at) + (zlib.compress(data, LEVEL) if large else data)


def stretch(data: bytes, like: bytes = b"") -> bytes:
    if len(data) < REST.size:
        raise ValueError("it is cut short")
    large, at = REST.unpack_from(data)
    data = zlib.decompress(data[REST.size :]) if large else data[REST.size :]
    return data if at == NOWHERE else b"".join((data[:at], like, data[at:]))


def own_items(blocks: Sequence[Block], before: int) -> bytes:
    """What a response's body repeats: its own output, which its record's last blocks hold too."""
    return b",".join([block.item for block in blocks[before:]])


async def gently(work: Callable[[bytes, bytes], bytes], data: bytes, like: bytes = b"") -> bytes:
    """In a thread, when there is much of it."""
    if len(data) > LARGE_BYTES:
        return await asyncio.to_thread(work, data, like)
    return work(data, like)


async def all_packed(
    blocks: Iterable[Block], known: Callable[[bytes], bool] = lambda digest: False
) -> list[Packed]:
    """Each block packed; of a `known` one only its digest is given, with no data."""
    packed, since = list[Packed](), 0
    for block in blocks:
        if block.digest and known(block.digest):
            packed.append(Packed(block.digest, b""))
            since += 64
        elif (size := len(block.item) + len(block.ids)) > LARGE_BYTES:
            packed.append(await asyncio.to_thread(pack, block))
        else:
            packed.append(pack(block))
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


def _raw(block: Block) -> bytes:
    call_id = None if block.call_id is None else block.call_id.encode("utf-8", "surrogatepass")
    callee = None if block.callee is None else block.callee.encode("utf-8", "surrogatepass")
    parts = (call_id, callee, block.item)
    lengths = (-1 if part is None else len(part) for part in parts)
    head = HEAD.pack(KINDS.index(block.kind), *lengths)
    return b"".join((head, *(part or b"" for part in parts), _apart(block.ids)))


def _apart(ids: bytes) -> bytes:
    """All first bytes, then all second ones, and so on: alike stands by alike, and packs better."""
    return b"".join([ids[place::4] for place in range(4)])


def _together(apart: bytes) -> bytes:
    ids, at = bytearray(len(apart)), 0
    for place in range(4):
        count = len(ids[place::4])
        ids[place::4] = apart[at : at + count]
        at += count
    return bytes(ids)


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "surrogatepass")


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=DIGEST_BYTES).digest()
