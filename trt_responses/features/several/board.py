"""What the front ends of a fleet know of one engine together: whether it is drained, how many
requests it has, and the prompts that it has read lately.

A file that all have mapped into memory holds it, with a row for each engine and in it a column for
each front end, which that one alone writes. One process has rows of its own. Knows numbers.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from trt_responses.features.several.prefixes import Prefixes

PLACES = 65_536
"""The blocks that a row holds at most: half a megabyte."""
WORD = 8


class Row:
    """One engine, as one process sees it."""

    def __init__(self, words: memoryview, front_ends: int, number: int) -> None:
        self._words = words
        self._own, self._columns = 1 + number, slice(1, 1 + front_ends)
        self.prefixes = Prefixes(words[1 + front_ends :])
        words[self._own] = 0  # what a front end had that died in this place has ended with it

    @property
    def draining(self) -> bool:
        return bool(self._words[0])

    @draining.setter
    def draining(self, draining: bool) -> None:
        self._words[0] = draining

    @property
    def running(self) -> int:
        """The requests of all front ends."""
        return sum(self._words[self._columns])

    def add(self, requests: int) -> None:
        """Note that this front end has so many requests more."""
        self._words[self._own] += requests


def own_row() -> Row:
    """A row that no other process sees."""
    return Row(memoryview(bytearray(_row_words(1) * WORD)).cast("q"), 1, 0)


def make_board(path: Path, engines: int, front_ends: int) -> None:
    """Make the file, with a row for each engine."""
    path.touch(0o600)
    with path.open("r+b") as file:
        file.truncate(engines * _row_words(front_ends) * WORD)


def rows_of(path: Path, front_ends: int, number: int) -> list[Row]:
    """The rows of a file, for one of its front ends."""
    with path.open("r+b") as file:
        words = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
    length = _row_words(front_ends)
    starts = range(0, len(words), length)
    return [Row(words[at : at + length], front_ends, number) for at in starts]


def _row_words(front_ends: int) -> int:
    return 1 + front_ends + PLACES
