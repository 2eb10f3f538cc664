"""What a compaction item carries, as bytes. Knows no cipher and no owner."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

import orjson

from trt_responses.features.seal.turn import MAX_BYTES, swapped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.store import Kind


class SealedCompaction(NamedTuple):
    """The content of a compaction item: ids that stand for what was left out."""

    date: str
    """The date in the system message, so that a prefix outlives a midnight."""
    calls: Mapping[str, str]
    """The calls among the ids whose results may come later: the recipient of each by its id."""
    ids: bytes
    """The ids, unsigned 32-bit, in this machine's byte order."""
    said: Sequence[tuple[Kind, int, int]] | None = None
    """The places in the ids, in bytes, where messages of users and developers begin and end: then
    the item needs no other beside it. None: those messages stand beside the item."""


def packed(compaction: SealedCompaction) -> bytes:
    """The bytes of a compaction, the same on every machine."""
    head = orjson.dumps([compaction.date, dict(compaction.calls), compaction.said])
    return zlib.compress(b"%b\n%b" % (head, swapped(compaction.ids)), 6)


def unpacked(data: bytes) -> SealedCompaction:
    """The compaction in the bytes, which are authenticated and therefore not checked."""
    head, _, ids = zlib.decompressobj().decompress(data, MAX_BYTES).partition(b"\n")
    date, calls, *said = orjson.loads(head)  # older items do not say it
    return SealedCompaction(date, calls, swapped(ids), *said)
