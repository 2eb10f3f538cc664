"""Which rank a request goes to, where each keeps the attention and the cache of its own requests.

A conversation stays with the rank that has its prefix; a new one goes where the fewest run. Knows
ids and counts; knows no package.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from trt_responses.tokens.control import CONTROL

KEPT = 1 << 16
"""The number of prompts that are remembered, the newest first."""


class Ranks:
    """Chooses the rank of each prompt. A prompt is known again by all that stands before its last
    message, since the next turn begins with it as well. Two prompts that share only their
    instructions are strangers."""

    def __init__(self, count: int, *, kept: int = KEPT) -> None:
        self.running = [0] * count
        self._kept = kept
        self._rank_of: OrderedDict[bytes, int] = OrderedDict()

    def choose(self, prompt_ids: Sequence[int]) -> int:
        """The rank for this prompt, which is remembered."""
        digests = list(_prefixes(prompt_ids))
        known = (self._rank_of.get(digest) for digest in reversed(digests))
        rank = next((found for found in known if found is not None), None)
        if rank is None:
            rank = self.running.index(min(self.running))
        if digests:
            self._rank_of[digests[-1]] = rank
            self._rank_of.move_to_end(digests[-1])
            if len(self._rank_of) > self._kept:
                self._rank_of.popitem(last=False)
        return rank


def _prefixes(prompt_ids: Sequence[int]) -> Iterator[bytes]:
    """A digest of each prefix that ends before a message."""
    words, digest, done = array("I", prompt_ids), blake2b(digest_size=16), 0
    for place, token_id in enumerate(prompt_ids):
        if token_id == CONTROL.start and place:
            digest.update(words[done:place].tobytes())
            done = place
            yield digest.digest()
