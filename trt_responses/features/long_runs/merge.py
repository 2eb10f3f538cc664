"""Byte-pair merging of one pre-token, exact and in bounded steps.

Works on ranks and bytes: no text, no pre-token rule, no event loop. Each function is a generator
that yields None after a bounded number of steps, so that the caller can do other work.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from heapq import heapify, heappop, heappush

STEPS = 256
"""Merges between two pauses (or eight times as many first look-ups); under a millisecond."""
WINDOW = 1024
OVERLAP = 256
"""Bytes. No token has more than 128, so two windows nearly always agree within the overlap."""

_NEVER = 1 << 31
_LOW = (1 << 32) - 1
"""Packs two numbers as high << 32 | low: the garbage collector does not track ints."""


def merged(data: bytes, ranks: Mapping[bytes, int]) -> Generator[None, None, list[int]]:
    """The tokens of `data`, each as start << 32 | id: the lowest pair is merged, leftmost first."""
    following, rank_at, heap = yield from _pairs(data, ranks)
    n = len(data)
    before = list(range(-1, n - 1))
    steps = 0
    while heap:
        steps += 1
        if steps % STEPS == 0:
            yield
        key = heappop(heap)
        left = key & _LOW
        if rank_at[left] != key >> 32:
            continue
        gone = following[left]
        right = following[left] = following[gone]
        rank_at[gone] = _NEVER
        rank = _NEVER
        if right < n:
            before[right] = left
            rank = ranks.get(data[left : following[right]], _NEVER)
            if rank != _NEVER:
                heappush(heap, rank << 32 | left)
        rank_at[left] = rank
        if (earlier := before[left]) >= 0:
            rank_at[earlier] = rank = ranks.get(data[earlier:right], _NEVER)
            if rank != _NEVER:
                heappush(heap, rank << 32 | earlier)
    return (yield from _pieces(data, ranks, following))


def _pairs(
    data: bytes, ranks: Mapping[bytes, int]
) -> Generator[None, None, tuple[list[int], list[int], list[int]]]:
    """Every neighbouring pair of bytes, as a heap of rank and place."""
    n = len(data)
    rank_at: list[int] = []
    for low in range(0, n, STEPS * 8):
        high = min(n, low + STEPS * 8)
        rank_at += [ranks.get(data[i : i + 2], _NEVER) for i in range(low, high)]
        if high < n:
            yield
    rank_at[-1] = _NEVER
    heap = [rank << 32 | i for i, rank in enumerate(rank_at) if rank != _NEVER]
    heapify(heap)
    return list(range(1, n + 1)), rank_at, heap


def _pieces(
    data: bytes, ranks: Mapping[bytes, int], following: list[int]
) -> Generator[None, None, list[int]]:
    pieces: list[int] = []
    start, n = 0, len(data)
    while start < n:
        end = following[start]
        pieces.append(start << 32 | ranks[data[start:end]])
        start = end
        if len(pieces) % (STEPS * 4) == 0:
            yield
    return pieces


class LongRun:
    """Tokenises one long pre-token window by window.

    Why windows can be joined: a sequence of tokens is the merge of its bytes exactly when each
    pair of neighbours is the merge of its own bytes. (Until a merge first crosses a boundary, the
    merges inside two neighbours are those of the two alone, so the first crossing would also
    happen there; without a crossing nothing differs.) Two windows with the same token at the same
    place can therefore be joined at it: each pair of neighbours lies in one of them.
    """

    __slots__ = ("_covered", "_data", "_last", "_overlap", "_ranks", "_window", "pieces")

    def __init__(
        self,
        data: bytes | bytearray,
        ranks: Mapping[bytes, int],
        *,
        window: int = WINDOW,
        overlap: int = OVERLAP,
    ) -> None:
        self._data = data
        self._ranks = ranks
        self._window = window
        self._overlap = overlap
        self._covered = 0
        self._last: tuple[bytes, list[int]] = (b"", [])
        self.pieces: list[int] = []
        """Tokens of the data covered so far, as start << 32 | id; the last ones may change."""

    @property
    def least_count(self) -> int:
        """The number of tokens that further windows cannot change."""
        if self._covered == len(self._data):
            return len(self.pieces)
        return max(0, len(self.pieces) - self._overlap)

    def token_ids(self) -> Iterator[list[int]]:
        for low in range(0, len(self.pieces), STEPS * 16):
            yield [piece & _LOW for piece in self.pieces[low : low + STEPS * 16]]

    def steps(self) -> Generator[None, None, None]:
        overlap = self._overlap
        while self._covered < len(self._data):
            kept = self._first_after(self._covered - overlap)
            start = self.pieces[kept] >> 32 if self.pieces else 0
            end = min(len(self._data), self._covered + max(self._window, overlap))
            window = yield from self._merged(bytes(self._data[start:end]))
            if self._join(kept, start, window):
                self._covered = end
                overlap = self._overlap
            else:
                overlap *= 2  # never seen outside tests; ends at the start of the data

    def _merged(self, window: bytes) -> Generator[None, None, list[int]]:
        """The tokens of a window. Long runs mostly repeat one character, so the last window is
        remembered."""
        if window == self._last[0]:
            yield
        else:
            self._last = (window, (yield from merged(window, self._ranks)))
        return self._last[1]

    def _first_after(self, place: int) -> int:
        """Index of the first token that starts at or after `place`, or 0."""
        if place <= 0:
            return 0
        index = len(self.pieces)
        while index > 0 and self.pieces[index - 1] >> 32 >= place:
            index -= 1
        return min(index, len(self.pieces) - 1)

    def _join(self, kept: int, start: int, window: list[int]) -> bool:
        """Append a window's tokens from a token that both have; False when they share none."""
        if start == 0:
            self.pieces = window
            return True
        shift = start << 32
        tail = {piece - shift: index for index, piece in enumerate(self.pieces[kept:], kept)}
        for j, piece in enumerate(window):
            if (index := tail.get(piece)) is not None:
                self.pieces[index:] = [piece + shift for piece in window[j:]]
                return True
        return False
