"""Tokenises stretches of text that hold long unbroken runs, in linear time and bounded steps.

openai-harmony's merge takes quadratic time in one run, so it gets the short pre-tokens of a stretch
and `merge.py` the long ones. The ids are exact.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Sequence

from trt_responses.errors import refuse_longer
from trt_responses.features.long_runs.merge import LongRun
from trt_responses.features.long_runs.pretokens import PIECE, Scanner, Shapes, looks_ahead
from trt_responses.tokens.cuts import BLOCK

LONG = 2 * BLOCK + 4
"""Length from which `merge.py` merges a pre-token: 0.1 ms of openai-harmony's quadratic time."""
SCANNED_AT_ONCE = 2 * PIECE
"""Characters that the exact scanner reads between two pauses."""
ENCODED_AT_ONCE = 65_536
"""Characters that are encoded between two pauses."""
RANKED_AT_ONCE = 16_384
"""Tokens that are numbered between two pauses: a millisecond."""


class Runs:
    """Tokenises long runs, and what stands between them."""

    def __init__(self, native: Callable[[str], list[int]], token_bytes: Sequence[bytes]) -> None:
        """`native` is openai-harmony's encoder."""
        self._native = native
        self._shapes = Shapes(native)
        self._token_bytes = token_bytes
        self._ranks: dict[bytes, int] = {}

    def steps(
        self, text: str, at: int, stop: int, ids: array[int], at_most: int | None
    ) -> Generator[None, None, int]:
        """Tokenise whole pre-tokens up to `stop`: short ones together, long ones alone."""
        scanner = Scanner(text, self._shapes)
        done = paused = at
        while at < stop:
            end = yield from scanner.end(at)
            if end - at >= LONG:
                self._append(text, done, at, ids)
                yield from self._merged(text, at, end, ids, at_most)
                done = end
            at = end
            if at - paused >= SCANNED_AT_ONCE:
                paused = at
                yield
        self._append(text, done, at, ids)
        return at

    def _append(self, text: str, start: int, end: int, ids: array[int]) -> None:
        """Append the ids of short pre-tokens; white space that looks ahead stays separate."""
        if start < end and looks_ahead(text, end):
            ids.extend(self._native(text[start : end - 1]))
            start = end - 1
        ids.extend(self._native(text[start:end]))

    def _merged(
        self, text: str, start: int, end: int, ids: array[int], at_most: int | None
    ) -> Generator[None, None, None]:
        data = bytearray()
        for low in range(start, end, ENCODED_AT_ONCE):
            data += text[low : min(end, low + ENCODED_AT_ONCE)].encode()
            yield
        yield from self._rank_all()
        run = LongRun(data, self._ranks)
        for _ in run.steps():
            refuse_longer(len(ids) + run.least_count, at_most)
            yield
        for some in run.token_ids():
            ids.extend(some)
            yield

    def _rank_all(self) -> Generator[None, None, None]:
        """Number the tokens for the first long run: most servers never see one (15 MB)."""
        if not self._ranks:
            ranks: dict[bytes, int] = {}
            for low in range(0, len(self._token_bytes), RANKED_AT_ONCE):
                some = self._token_bytes[low : low + RANKED_AT_ONCE]
                ranks.update(zip(some, range(low, low + len(some)), strict=True))
                yield
            self._ranks = ranks
