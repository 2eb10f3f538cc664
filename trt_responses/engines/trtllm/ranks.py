"""Chooses the rank of a request, if each rank has its own attention cache.

A conversation stays on the rank with its prefix; a new one goes to the rank with the fewest
requests. Ids and counts only: no package.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from trt_responses.tokens.control import CONTROL

KEPT = 1 << 16
"""Maximum remembered prompts."""


class Ranks:
    """Chooses the rank of each prompt. A prompt is recognised by everything before its last
    message, since the next turn begins with it. Prompts that share only instructions are
    unrelated."""

    def __init__(self, count: int, *, kept: int = KEPT) -> None:
        self.running = [0] * count
        self._kept = kept
        self._rank_of: OrderedDict[bytes, int] = OrderedDict()

    def choose(self, prompt_ids: Sequence[int]) -> int:
        """The rank for this prompt; it is remembered."""
        digests = list(_prefixes(prompt_ids))
        ranks = (self._rank_of.get(digest) for digest in reversed(digests))
        rank = next((each for each in ranks if each is not None), None)
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
