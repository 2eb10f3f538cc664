"""Blocks and bodies at rest: compressed, named by their content, and packed with pauses.

Knows bytes; knows no store. Whoever waits here never holds the event loop for long: small things
are packed in slices with a pause between, a large one in a thread, where zlib lets go of the lock.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from dataclasses import replace
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, get_args

from trt_responses.store.base import Block, Kind
from trt_responses.store.phrases import brief, full

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Has = Callable[[bytes], bool]
    """Whether a store holds the block of a digest."""

LEVEL, WINDOW_BITS, MEMORY = 1, 12, 5
"""zlib's fastest, with 32 kB to work in instead of 270: as small in the end, and sooner ready."""
SMALL_BYTES = 768
"""Up to here as it is: zlib would take 20 µs to save two hundred bytes."""
LARGE_BYTES = 64 * 1024
"""About a millisecond of packing: what is larger goes to a thread."""
UNPACKED_AT_ONCE = 200
"""Blocks between two pauses; about a millisecond too."""
DIGEST_BYTES = 20

KINDS: tuple[Kind, ...] = get_args(Kind)
NUMBERS: Mapping[Kind, int] = {kind: number for number, kind in enumerate(KINDS)}
HEAD = Struct("<Biii")
ABSENT = -1
"""The kind, then the lengths of call id, callee and item. The ids are what is left."""


DEFLATED, AS_IT_IS = b"z", b"="
CUT = Struct("<i?")
"""Before a body: where something was taken out, and whether it speaks in phrases."""
NOWHERE = -1

LOW = Struct("<i")
"""Before a block: how many bytes of its ids stand apart, since nothing makes them smaller."""

WORDS = (
    b'{"id":"resp_","created_at":17,"model":"","status":"failed","output":[],"completed_at":null,'
    b'"error":{"code":"server_error","message":""},"incomplete_details":{"reason":'
    b'"max_output_tokens"},"usage":null,"background":true,"metadata":{},"tools":[{"type":"function",'
    b'"name":"","description":"","strict":false,"parameters":{"type":"object","properties":{'
    b'"type":"string"},"required":[],"additionalProperties":false}}],"call_id":"call_",'
    b'"arguments":"{\\"","status":"completed","type":"function_call","type":'
    b'"function_call_output","output":"","type":"message","role":"user","content":"","id":"rs_",'
    b'"status":"completed","content":[{"text":"","type":"reasoning_text"}],"summary":[],"type":'
    b'"reasoning"}{"id":"msg_","phase":"final_answer","status":"completed","content":[{"text":"",'
    b'"annotations":[],"logprobs":[],"type":"output_text"}],"role":"assistant","type":"message"}'
    b'"status":"completed","output":[],"completed_at":17,"error":null,"incomplete_details":null,'
    b'"usage":{"input_tokens":0,"output_tokens":0,"total_tokens":0,"input_tokens_details":{'
    b'"cached_tokens":0,"cache_write_tokens":0},"output_tokens_details":{"reasoning_tokens":0}},'
    b'"background":false,"frequency_penalty":0.0,"instructions":null,"max_output_tokens":null,'
    b'"max_tool_calls":null,"metadata":{},"parallel_tool_calls":false,"presence_penalty":0.0,'
    b'"previous_response_id":null,"prompt_cache_key":null,"reasoning":{"effort":null,"summary":null'
    b'},"safety_identifier":null,"service_tier":"default","store":true,"temperature":1.0,"text":{'
    b'"format":{"type":"text"},"verbosity":"medium"},"tool_choice":"auto","tools":[],'
    b'"top_logprobs":0,"top_p":1.0,"truncation":"disabled","object":"response"}'
)
"""What most of what is kept repeats. Part of the format: nothing can be read with other words."""


ASKED_FROM = b',"background":'
"""Where a body begins to repeat what was asked: instructions, tools, and all that is echoed."""


class Packed(NamedTuple):
    """A block at rest; without data, when the store has it."""

    digest: bytes
    data: bytes


def nowhere(digest: bytes) -> bool:
    return False


def pack(block: Block, has: Has = nowhere) -> Packed:
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


def squeeze(data: bytes) -> bytes:
    """Compressed, where that is worth it."""
    return DEFLATED + _deflated(data) if len(data) > SMALL_BYTES else AS_IT_IS + data


def stretch(data: bytes) -> bytes:
    if data[:1] not in (DEFLATED, AS_IT_IS):
        raise ValueError("it is cut short")
    return _inflated(data[1:]) if data[:1] == DEFLATED else data[1:]


def squeeze_body(body: bytes, like: bytes) -> bytes:
    """Without `like`, which whoever stretches it has."""
    at = body.find(like) if like else NOWHERE
    rest = body if at == NOWHERE else body[:at] + body[at + len(like) :]
    shorter = brief(rest)
    return CUT.pack(at, shorter is not None) + squeeze(rest if shorter is None else shorter)


def stretch_body(data: bytes, like: bytes) -> bytes:
    if len(data) < CUT.size:
        raise ValueError("it is cut short")
    at, is_brief = CUT.unpack_from(data)
    rest = stretch(data[CUT.size :])
    rest = full(rest) if is_brief else rest
    return rest if at == NOWHERE else b"".join((rest[:at], like, rest[at:]))


_READY = zlib.compressobj(LEVEL, zlib.DEFLATED, -WINDOW_BITS, MEMORY, zdict=WORDS)


def _deflated(data: bytes) -> bytes:
    ready = _READY.copy()  # it has read the words
    return ready.compress(data) + ready.flush()


def _inflated(data: bytes) -> bytes:
    reading = zlib.decompressobj(-WINDOW_BITS, WORDS)
    whole = reading.decompress(data)
    if not reading.eof or reading.unused_data:
        raise ValueError("it is cut short, or goes on behind its end")
    return whole


def own_items(blocks: Sequence[Block], before: int) -> bytes:
    """What a response's body repeats: its own output, which its record's last blocks hold too."""
    return b",".join([block.item for block in blocks[before:]])


async def gently(work: Callable[..., bytes], data: bytes, *like: bytes) -> bytes:
    """In a thread, when there is much of it."""
    if len(data) > LARGE_BYTES:
        return await asyncio.to_thread(work, data, *like)
    return work(data, *like)


def apart(body: bytes) -> tuple[bytes, Block]:
    """A body's own part, and what was asked. The responses of one client repeat that, with all its
    tools: as a block it is kept once."""
    at = body.find(ASKED_FROM)
    at = len(body) if at == NOWHERE else at
    asked = body[at:]
    return body[:at], _asked_lately(asked) if len(asked) < LARGE_BYTES else _asked(asked)


def _asked(item: bytes) -> Block:
    block = Block("asked", item, b"")
    return replace(block, digest=_digest(*_raw(block)))


_asked_lately = lru_cache(maxsize=16)(_asked)


async def all_packed(
    blocks: Iterable[Block], has: Has = nowhere, *, named: Has | None = None
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
        lengths = (ABSENT if name is None else len(name) for name in names)  # "" is 0 long
        head = HEAD.pack(kind, *lengths, len(item))
        head += b"".join(name or b"" for name in names)
    return b"".join((head, item, ids[2::4], ids[3::4])), ids[0::4] + ids[1::4]


def _together(apart: bytes) -> bytes:
    ids, at = bytearray(len(apart)), 0
    for place in range(4):
        count = len(ids[place::4])
        ids[place::4] = apart[at : at + count]
        at += count
    return bytes(ids)


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "surrogatepass")


def _digest(raw: bytes, low: bytes) -> bytes:
    digest = hashlib.blake2b(raw, digest_size=DIGEST_BYTES)
    digest.update(low)
    return digest.digest()
