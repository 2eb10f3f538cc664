"""Records in memory: the least recently used leave first. Knows bytes, counts and nothing else."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trt_responses.store.base import Block, Record


class MemoryStore:
    """An LRU bounded by bytes and by count. A block that several records share is counted once."""

    def __init__(self, *, max_bytes: int, max_records: int) -> None:
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._shares: Counter[int] = Counter()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    async def start(self) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        self._records.clear()
        self._shares.clear()
        self.size_bytes = 0

    async def put(self, record: Record) -> None:
        if record.id in self._records:
            self._drop(record.id)
        self._records[record.id] = record
        self.size_bytes += len(record.body)
        for block in record.blocks:
            self._share(block)
        while len(self._records) > 1 and (
            self.size_bytes > self._max_bytes or len(self._records) > self._max_records
        ):
            self._drop(next(iter(self._records)))

    async def get(self, response_id: str, owner: str) -> Record | None:
        record = self._records.get(response_id)
        if record is None or record.owner != owner:
            return None
        self._records.move_to_end(response_id)
        return record

    async def delete(self, response_id: str, owner: str) -> bool:
        if await self.get(response_id, owner) is None:
            return False
        self._drop(response_id)
        return True

    def _drop(self, response_id: str) -> None:
        record = self._records.pop(response_id)
        self.size_bytes -= len(record.body)
        for block in record.blocks:
            self._unshare(block)

    # A record holds its blocks, so a block's id() names it for as long as it is counted.

    def _share(self, block: Block) -> None:
        self._shares[id(block)] += 1
        if self._shares[id(block)] == 1:
            self.size_bytes += block.size_bytes

    def _unshare(self, block: Block) -> None:
        self._shares[id(block)] -= 1
        if not self._shares[id(block)]:
            del self._shares[id(block)]
            self.size_bytes -= block.size_bytes
