"""Which prompts an engine has read lately, by digests of their blocks: a guess of its cache.

A block's digest holds all before it, so that one digest stands for a whole prefix. An engine's
cache is never shared between owners or adapters, and neither is a digest. Knows ids alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

BLOCK = 64
"""The ids of a block."""


def blocks_of(prompt_ids: Sequence[int], salt: str | None) -> list[int]:
    """The digest of each whole block of a prompt. They hold within this process, and within a
    fleet, whose front ends share the seed of hashes."""
    raw = array("I", prompt_ids).tobytes()
    size, digest, blocks = 4 * BLOCK, hash(salt or ""), []
    for end in range(size, len(raw) + 1, size):
        digest = hash((digest, raw[end - size : end]))
        blocks.append(digest)
    return blocks


class Prefixes:
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
