"""Which prompts an engine has read lately, by digests of their blocks: a guess of its cache.

A block's digest holds all before it, so that one digest stands for a whole prefix. An engine's
cache is never shared between owners or adapters, and neither is a digest. Knows ids alone.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK = 64
"""The ids of a block."""
MOST_BLOCKS = 32_768
"""Two million ids, in 6 MB."""


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
    """The blocks that one engine has read, those of the newest prompts."""

    def __init__(self, most: int = MOST_BLOCKS) -> None:
        self._most = most
        self._known: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._known)

    def warm(self, blocks: Sequence[int]) -> int:
        """How many blocks from the first one on it has read."""
        for place in range(len(blocks), 0, -1):
            if blocks[place - 1] in self._known:
                return place
        return 0

    def add(self, blocks: Sequence[int]) -> None:
        """Note a prompt. What is forgotten first is the end of the oldest one, as in a cache."""
        known = self._known
        for block in reversed(blocks[: self._most]):
            known.pop(block, None)
            known[block] = None
        while len(known) > self._most:
            del known[next(iter(known))]

    def clear(self) -> None:
        """Forget all: the engine has lost its cache."""
        self._known.clear()
