"""A cache of the ids of messages that were rendered lately, bounded in bytes.

Knows what a message is made of and nothing of how it is rendered.
"""

from __future__ import annotations

import sys
from collections import OrderedDict

Header = tuple[str | int, ...]
"""What a message is made of: texts, and control ids between them. Texts that stand apart are
tokenised apart."""
Key = tuple[Header, str | bytes, int]
"""The key of an entry: header, text and terminator. Bytes stand for a text that is not written out
to be looked up."""

CACHE_BYTES = 64 << 20
ENTRY_BYTES = 300
"""Bytes that an entry takes beside its texts and ids, for tuples, the key and its place in the
order of use."""


class IdCache:
    """Ids of messages, by what they were made of. The longest unused go first when the bytes are
    too many."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._ids: OrderedDict[Key, bytes] = OrderedDict()

    def get(self, key: Key) -> bytes | None:
        if (ids := self._ids.get(key)) is not None:
            self._ids.move_to_end(key)
        return ids

    def put(self, key: Key, ids: bytes) -> None:
        if key in self._ids:
            return
        self._ids[key] = ids
        self._bytes += _entry_bytes(key, ids)
        while self._bytes > self._limit_bytes:
            self._bytes -= _entry_bytes(*self._ids.popitem(last=False))


def _entry_bytes(key: Key, ids: bytes) -> int:
    texts = sum(sys.getsizeof(part) for part in (*key[0], key[1]))
    return texts + len(ids) + ENTRY_BYTES
