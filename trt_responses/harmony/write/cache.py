"""A cache of recently rendered messages' ids, bounded in bytes.

It holds the parts of a message; rendering is `render.py`'s.
"""

from __future__ import annotations

import sys
from collections import OrderedDict

Header = tuple[str | int, ...]
"""The parts of a header: texts and control ids. Separate texts are tokenised separately."""
Key = tuple[Header, str | bytes, int]
"""The key of an entry: header, text and terminator. Bytes are the content of a text that is not
rendered for a look-up."""

CACHE_BYTES = 64 << 20
ENTRY_BYTES = 300
"""Overhead of an entry besides its texts and ids: tuples, the key and its link."""


class IdCache:
    """Ids of messages by their parts. Evicts the least recently used entries above the limit."""

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
