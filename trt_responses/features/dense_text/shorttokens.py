"""Looks up the ids of many short byte strings at once.

A string of up to eight bytes is a number, low byte first. Each token's number is in one of two
places of a hash table, so two array operations look up a whole array. Works on bytes and ids: no
text and no merging.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

LONGEST = 8
"""Bytes."""
MISSING = 1 << 30
"""The id of a string that is no token: above any id, and small enough to pack with a place."""

_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
_WORD = (1 << 64) - 1
_LOADED = 0.4
"""Upper bound on the table's load. Up to one half, each token fits in one of its two places."""


class ShortTokens:
    """Finds the ids of byte strings of up to eight bytes."""

    __slots__ = ("_first", "_ids", "_numbers", "_second", "_shift")

    def __init__(self, tokens: Mapping[bytes, int]) -> None:
        id_of = {int.from_bytes(token, "little"): i for token, i in tokens.items()}
        bits = max(4, int(len(id_of) / _LOADED).bit_length())
        while (places := _places(list(id_of), 64 - bits)) is None:
            bits += 1
        self._numbers = np.zeros(1 << bits, np.uint64)
        self._ids = np.full(1 << bits, MISSING, np.int64)
        filled = np.fromiter(places, np.int64)
        self._numbers[filled] = np.fromiter(places.values(), np.uint64)
        self._ids[filled] = [id_of[number] for number in places.values()]
        self._first, self._second = map(np.uint64, _FACTORS)
        self._shift = np.uint64(64 - bits)

    def find(self, numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The id of each, or MISSING; zero is no token."""
        first = (numbers * self._first >> self._shift).view(np.int64)
        second = (numbers * self._second >> self._shift).view(np.int64)
        place = np.where(self._numbers.take(first) == numbers, first, second)
        return np.where(self._numbers.take(place) == numbers, self._ids.take(place), MISSING)


def _places(numbers: list[int], shift: int) -> dict[int, int] | None:
    """The number in each filled place, by cuckoo hashing: a newcomer moves the present number to
    its other place. None when the table is too small."""
    places: dict[int, int] = {}
    moves = 2 * len(numbers) + 100
    for newcomer in numbers:
        number, place = newcomer, _place(newcomer, 0, shift)
        while (evicted := places.get(place)) is not None:
            places[place] = number
            other = _place(evicted, 0, shift)
            number, place = evicted, _place(evicted, 1, shift) if place == other else other
            if (moves := moves - 1) < 0:
                return None
        places[place] = number
    return places


def _place(number: int, which: int, shift: int) -> int:
    return (number * _FACTORS[which] & _WORD) >> shift
