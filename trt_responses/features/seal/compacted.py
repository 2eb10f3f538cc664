"""What a compaction item carries, as bytes. Knows no cipher and no owner."""

from __future__ import annotations

import zlib

import orjson

from trt_responses.features.references.sealed import SealedCompaction
from trt_responses.features.seal.turn import MAX_BYTES, swapped


def packed(compaction: SealedCompaction) -> bytes:
    """The bytes of a compaction, the same on every machine."""
    head = orjson.dumps([compaction.date, dict(compaction.calls), compaction.messages])
    return zlib.compress(b"%b\n%b" % (head, swapped(compaction.ids)), 6)


def unpacked(data: bytes) -> SealedCompaction:
    """The compaction in the bytes, which are authenticated and therefore not checked."""
    head, _, ids = zlib.decompressobj().decompress(data, MAX_BYTES).partition(b"\n")
    date, calls, *places = orjson.loads(head)  # older items do not say it
    return SealedCompaction(date, calls, swapped(ids), *places)
