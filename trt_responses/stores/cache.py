"""A cache of recently read blocks, by a key that is never reused.

A block never changes, so entries never become stale: the store is queried each time whether a
record exists and which blocks it has. Thread-safe.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from threading import Lock
from typing import Generic, TypeVar

from trt_responses.store import Block
from trt_responses.stores.whole import Usage

K = TypeVar("K", int, bytes)

OVERHEAD_BYTES = 400
"""Approximate memory of a block besides its content."""


class BlockCache(Generic[K]):
    """Blocks in memory; evicts the least recently used ones above its limit."""

    def __init__(self, max_bytes: int, usage: Usage) -> None:
        self._max_bytes = max_bytes
        self._usage = usage
        self._blocks: OrderedDict[K, Block] = OrderedDict()
        self._lock = Lock()
        self.size_bytes = 0

    def get_many(self, keys: Collection[K]) -> dict[K, Block]:
        """The cached blocks of these keys."""
        with self._lock:
            hits = {key: block for key in keys if (block := self._blocks.get(key)) is not None}
            for key in hits:
                self._blocks.move_to_end(key)
            self._usage.blocks["memory"] += len(hits)
            self._usage.blocks["store"] += len(set(keys)) - len(hits)
            return hits

    def keep(self, blocks: Iterable[tuple[K, Block]]) -> None:
        with self._lock:
            for key, block in blocks:
                if key not in self._blocks:
                    self._blocks[key] = block
                    self.size_bytes += _size(block)
            while self.size_bytes > self._max_bytes and self._blocks:
                self.size_bytes -= _size(self._blocks.popitem(last=False)[1])

    def clear(self) -> None:
        with self._lock:
            self._blocks.clear()
            self.size_bytes = 0


def _size(block: Block) -> int:
    return len(block.item) + len(block.ids) + OVERHEAD_BYTES
