"""How many responses each front end of a fleet makes, in a file that all have mapped into memory.

Each writes its own number and reads the others', so that a limit holds over all of them and costs
no message. Knows numbers; knows no response.
"""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PLACES = "places"
"""The file's name in a fleet's folder."""
WORD = struct.Struct("=I")


def make_places(path: Path, count: int) -> None:
    path.write_bytes(bytes(WORD.size * count))


class SharedPlaces:
    """Calling it notes how many responses are made here, and says how many the others make."""

    def __init__(self, path: Path, number: int) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._count = len(self._map) // WORD.size
        self._own = number * WORD.size

    def __call__(self, own: int) -> int:
        WORD.pack_into(self._map, self._own, own)
        counts: tuple[int, ...] = struct.unpack_from(f"={self._count}I", self._map)
        return sum(counts) - own
