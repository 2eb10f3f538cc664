"""What a compaction item carries, as bytes. Knows no cipher and no owner."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

import orjson

from trt_responses.response.seal.turn import MAX_BYTES, swapped

if TYPE_CHECKING:
    from collections.abc import Mapping


class SealedCompaction(NamedTuple):
    """The ids that stand for what was left out."""

    date: str
    """In the system message, so that a prefix outlives a midnight."""
    calls: Mapping[str, str]
    """Calls among the ids, whose results may come later: the recipient of each by its id."""
    ids: bytes
    """Unsigned 32-bit, in this machine's byte order."""


def packed(compaction: SealedCompaction) -> bytes:
    """The same on every machine."""
    head = orjson.dumps([compaction.date, dict(compaction.calls)])
    return zlib.compress(b"%b\n%b" % (head, swapped(compaction.ids)), 6)


def unpacked(data: bytes) -> SealedCompaction:
    """What was packed; it has been authenticated, and so is not doubted."""
    head, _, ids = zlib.decompressobj().decompress(data, MAX_BYTES).partition(b"\n")
    date, calls = orjson.loads(head)
    return SealedCompaction(date, calls, swapped(ids))
