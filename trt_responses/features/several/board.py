"""What the front ends of a fleet know of one engine together: whether it is drained, how many
requests it has, and the prompts that it has read lately.

A file that all have mapped into memory holds it, with a row for each engine and in it a column for
each front end, which that one alone writes. One process has rows of its own. Knows numbers.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from trt_responses.features.several.prefixes import Prefixes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PLACES = 65_536
"""The blocks that a shared row holds at most: half a megabyte."""
WORD = 8


class Row:
    """One engine, as one process sees it."""

    def __init__(self) -> None:
        self.prefixes: Prefixes | SharedPrefixes = Prefixes()
        self._words: memoryview | list[int] = [0, 0]
        self._own, self._columns = 1, slice(1, 2)

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


class SharedRow(Row):
    """A row that other processes see, too."""

    def __init__(self, words: memoryview, front_ends: int, number: int) -> None:
        self._own, self._columns = 1 + number, slice(1, 1 + front_ends)
        self._words = words
        self.prefixes = SharedPrefixes(words[1 + front_ends :])
        words[self._own] = 0  # what a front end had that died in this place has ended with it


class SharedPrefixes:
    """The blocks that an engine has read, each in the place that its digest names: of two with one
    place the later one stands there."""

    def __init__(self, places: memoryview) -> None:
        self._places = places

    def warm(self, blocks: Sequence[int]) -> int:
        """How many blocks from the first one on it has read."""
        places, most = self._places, len(self._places)
        for count in range(len(blocks), 0, -1):
            if places[blocks[count - 1] % most] == blocks[count - 1]:
                return count
        return 0

    def add(self, blocks: Sequence[int]) -> None:
        places, most = self._places, len(self._places)
        for block in blocks:
            places[block % most] = block

    def clear(self) -> None:
        """Forget all: the engine has lost its cache."""
        self._places.cast("B")[:] = bytes(self._places.nbytes)


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
    return [SharedRow(words[at : at + length], front_ends, number) for at in starts]


def _row_words(front_ends: int) -> int:
    return 1 + front_ends + PLACES
