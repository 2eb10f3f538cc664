"""The engine's output that a slow front end has yet to get.

Kept by request and not by time, so that a new stream's first ids do not wait behind all that the
others wrote before. Values only: no socket and no engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from trt_responses.engine import Chunk
from trt_responses.engines.remote.frames import Pending, is_plain

MOST_IDS = 64
"""Ids that one request sends at once; then it is the others' turn."""
CHUNK_BYTES = 256
ID_BYTES = 32
"""Memory of a chunk and of an id, rounded up."""


class Behind:
    """Chunks by their request's number. Plain ids of one request are joined."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._chunks: dict[int, deque[Chunk | deque[int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, number: int, chunk: Chunk) -> None:
        if is_plain(chunk):
            self.add_ids(number, chunk.token_ids)
            return
        self._chunks.setdefault(number, deque()).append(chunk)
        self.size_bytes += _size(chunk)

    def add_ids(self, number: int, ids: Sequence[int]) -> None:
        chunks = self._chunks.setdefault(number, deque())
        if chunks and isinstance(last := chunks[-1], deque):
            last += ids
        else:
            chunks.append(deque(ids))
        self.size_bytes += ID_BYTES * len(ids)

    def drop(self, number: int) -> None:
        """Forget a request that was aborted."""
        for each in self._chunks.pop(number, ()):
            self.size_bytes -= _size(each if isinstance(each, Chunk) else Chunk(tuple(each)))

    def take(self) -> Pending:
        """The next chunks of each request, those first that have least: new streams."""
        due: Pending = []
        for number, chunks in sorted(self._chunks.items(), key=_length):
            due += ((number, chunk) for chunk in _next(chunks))
            if not chunks:
                del self._chunks[number]
        self.size_bytes -= sum(_size(chunk) for _, chunk in due)
        return due


def _size(chunk: Chunk) -> int:
    return ID_BYTES * len(chunk.token_ids) + (0 if is_plain(chunk) else CHUNK_BYTES)


def _length(entry: tuple[int, deque[Chunk | deque[int]]]) -> int:
    return sum(1 if isinstance(each, Chunk) else len(each) for each in entry[1])


def _next(chunks: deque[Chunk | deque[int]]) -> list[Chunk]:
    """Take what one request may send now."""
    due: list[Chunk] = []
    room = MOST_IDS
    while chunks and room > 0:
        first = chunks[0]
        if isinstance(first, Chunk):
            due.append(first)
        else:
            due.append(Chunk([first.popleft() for _ in range(min(room, len(first)))]))
            if first:
                break
        chunks.popleft()
        room -= len(due[-1].token_ids)
    return due
