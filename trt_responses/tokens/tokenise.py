"""Turns any text into its exact o200k ids without blocking the event loop.

openai-harmony does the common work, in slices cut where it would cut itself. Its merge takes
quadratic time in one unbroken run, so `merge.py` merges such runs. All ids are ordinary: a control
id spelled in a text is text. Works on text alone: no message and no request.
"""

from __future__ import annotations

import re
from array import array
from typing import TYPE_CHECKING, Protocol

from trt_responses.errors import refuse_longer
from trt_responses.tasks import give_way
from trt_responses.tokens.merge import LongRun
from trt_responses.tokens.pretokens import (
    BLOCK,
    PIECE,
    Scanner,
    Shapes,
    has_long_run,
    last_cut,
    looks_ahead,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from trt_responses.tokens.vocabulary import Vocabulary

    class Ids(Protocol):
        """Unsigned 32-bit ids in this machine's byte order."""

        def tobytes(self) -> bytes: ...


SLICE = 2048
"""Characters per call of openai-harmony: 0.2 ms of prose, 2 ms at worst."""
LONG = 2 * BLOCK + 4
"""Length from which `merge.py` merges a pre-token: 0.1 ms of openai-harmony's quadratic time."""
LONGEST_TOKEN = 128
"""Characters of the longest token: a text has at least its length / 128 tokens."""
SCANNED_AT_ONCE = 2 * PIECE
"""Characters that the exact scanner reads between two pauses."""
CHECKED_AT_ONCE = 65_536
"""Characters searched for surrogates, or encoded, between two pauses."""
RANKED_AT_ONCE = 16_384
"""Tokens that are numbered between two pauses: a millisecond."""

_SURROGATES = re.compile("[\ud800-\udfff]+")


class Shortcut(Protocol):
    """Tokenises some texts faster than openai-harmony, to the same ids."""

    def encode(self, text: str, at: int) -> tuple[Ids, int] | None:
        """The ids from `at`, the start of a pre-token, and their end; None if this is no faster."""
        ...


class Tokeniser:
    """Turns texts into ids, in bounded steps."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        slice_chars: int = SLICE,
        native: Callable[[str], list[int]] | None = None,
        shortcut: Shortcut | None = None,
    ) -> None:
        self._native = native or vocabulary.encode_plain
        self._slice_chars = slice_chars
        self._unpaused = 0
        self._shapes = Shapes(self._native)
        self.shortcut = shortcut
        self.token_bytes = vocabulary.token_bytes
        self._ranks: dict[bytes, int] = {}

    async def encode(self, text: str, *, at_most: int | None = None) -> array[int]:
        """The ids of a text. Other tasks run between slices, and between many short texts."""
        ids: array[int] = array("I")
        for _ in self.steps(text, ids, at_most):
            await self.pause()
        self._unpaused += len(text)
        if self._unpaused > self._slice_chars:
            await self.pause()
        return ids

    async def pause(self) -> None:
        self._unpaused = 0
        await give_way()

    def steps(
        self, text: str, ids: array[int], at_most: int | None = None
    ) -> Generator[None, None, None]:
        """Append the text's ids to `ids`; yield after each bounded piece of work."""
        refuse_longer(len(text) // LONGEST_TOKEN, at_most)
        text = yield from _well_formed(text)
        scanner = Scanner(text, self._shapes)
        at = 0
        while at < len(text):
            if at:
                yield
            short = self.shortcut.encode(text, at) if self.shortcut is not None else None
            if short is not None:
                some, at = short
                ids.frombytes(some.tobytes())
            else:
                at = yield from self._slice(scanner, text, at, ids, at_most)
            refuse_longer(len(ids), at_most)

    def _slice(
        self, scanner: Scanner, text: str, at: int, ids: array[int], at_most: int | None
    ) -> Generator[None, None, int]:
        stop = min(len(text), at + self._slice_chars)
        cut = self._cut(text, at, stop)
        if cut > at:
            ids.extend(self._native(text[at:cut]))
            return cut
        return (yield from self._scanned(scanner, text, at, stop, ids, at_most))

    def _cut(self, text: str, at: int, stop: int) -> int:
        """The end of what openai-harmony may tokenise in one call; `at` if it must not."""
        if has_long_run(text, at, stop):
            return at
        return stop if stop == len(text) else last_cut(text, at, stop)

    def _scanned(
        self,
        scanner: Scanner,
        text: str,
        at: int,
        stop: int,
        ids: array[int],
        at_most: int | None,
    ) -> Generator[None, None, int]:
        """Tokenise whole pre-tokens up to `stop`: short ones together, long ones alone."""
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
        for low in range(start, end, CHECKED_AT_ONCE):
            data += text[low : min(end, low + CHECKED_AT_ONCE)].encode()
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
            for low in range(0, len(self.token_bytes), RANKED_AT_ONCE):
                some = self.token_bytes[low : low + RANKED_AT_ONCE]
                ranks.update(zip(some, range(low, low + len(some)), strict=True))
                yield
            self._ranks = ranks


def _well_formed(text: str) -> Generator[None, None, str]:
    """The text with surrogate pairs joined and lone ones replaced, as openai-harmony does."""
    if text.isascii():
        return text
    for low in range(0, len(text), CHECKED_AT_ONCE):
        if low:
            yield
        try:
            text[low : low + CHECKED_AT_ONCE].encode()  # five times as fast as a search
        except UnicodeEncodeError:
            return _SURROGATES.sub(_joined, text)
    return text


def _joined(match: re.Match[str]) -> str:
    return match.group().encode("utf-16", "surrogatepass").decode("utf-16", "replace")
