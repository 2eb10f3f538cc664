"""Blocks that were read lately, by a key that never stands for anything else.

A block never changes, so nothing here can be stale: whether a record still exists, and which
blocks it has, is asked of the store each time. Used from threads.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from trt_responses.store import Block, Usage

K = TypeVar("K", int, bytes)

OVERHEAD_BYTES = 400
"""Bytes that a block takes in memory besides its content, about."""


class BlockCache(Generic[K]):
    """Blocks in memory, of which the least recently used leave first."""

    def __init__(self, max_bytes: int, usage: Usage) -> None:
        self._max_bytes = max_bytes
        self._usage = usage
        self._blocks: OrderedDict[K, Block] = OrderedDict()
        self._lock = Lock()
        self.size_bytes = 0

    def found(self, keys: Collection[K]) -> dict[K, Block]:
        with self._lock:
            found = {key: block for key in keys if (block := self._blocks.get(key)) is not None}
            for key in found:
                self._blocks.move_to_end(key)
            self._usage.blocks["memory"] += len(found)
            self._usage.blocks["store"] += len(set(keys)) - len(found)
            return found

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
