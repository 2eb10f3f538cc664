"""Turns any text into its exact o200k ids without blocking the event loop.

openai-harmony does the work, in slices cut where it would cut itself. Its merge takes quadratic
time in one unbroken run, so a folder may tokenise such runs; without one, long runs are refused.
All ids are ordinary: a control id spelled in a text is text. Works on text alone: no message and
no request.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Generator
from typing import Protocol

from trt_responses.errors import refuse_longer, unsupported_value
from trt_responses.tasks import give_way
from trt_responses.tokens.cuts import has_long_run, last_cut
from trt_responses.tokens.vocabulary import Vocabulary

SLICE = 2048
"""Characters per call of openai-harmony: 0.2 ms of prose, 2 ms at worst."""
SHORT = 64
"""Characters of a text, such as a role, that is one piece of work and in which no run is long."""
UNBROKEN = 512
"""Characters of one run that openai-harmony gets where no folder tokenises runs: 4 ms at worst."""
LONGEST_TOKEN = 128
"""Characters of the longest token: a text has at least its length / 128 tokens."""
CHECKED_AT_ONCE = 65_536
"""Characters searched for surrogates, or encoded, between two pauses."""
_SURROGATES = re.compile("[\ud800-\udfff]+")


class LongRuns(Protocol):
    """Tokenises runs without a word break in linear time and bounded steps, to the same ids."""

    def steps(
        self, text: str, at: int, stop: int, ids: array[int], at_most: int | None
    ) -> Generator[None, None, int]:
        """Append the ids from `at`, the start of a pre-token, to `stop` or the end of the pre-token
        there, which is returned."""
        ...


class Tokeniser:
    """Turns texts into ids, in bounded steps."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        slice_chars: int = SLICE,
        native: Callable[[str], list[int]] | None = None,
        long_runs: LongRuns | None = None,
    ) -> None:
        self.native = native or vocabulary.encode_plain
        """openai-harmony's encoder."""
        self._slice_chars = slice_chars
        self._unpaused = 0
        self.long_runs = long_runs
        self.token_bytes = vocabulary.token_bytes

    async def encode(self, text: str, *, at_most: int | None = None) -> array[int]:
        """The ids of a text. Other tasks run between slices, and between many short texts."""
        if len(text) <= SHORT and text.isascii():
            ids = array("I", self.native(text))
            refuse_longer(len(ids), at_most)
        else:
            ids = array("I")
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
        at = 0
        while at < len(text):
            if at:
                yield
            at = yield from self._slice(text, at, ids, at_most)
            refuse_longer(len(ids), at_most)

    def _slice(
        self, text: str, at: int, ids: array[int], at_most: int | None
    ) -> Generator[None, None, int]:
        stop = min(len(text), at + self._slice_chars)
        cut = at if has_long_run(text, at, stop) else _cut(text, at, stop)
        if cut == at:
            if self.long_runs is not None:
                return (yield from self.long_runs.steps(text, at, stop, ids, at_most))
            cut = _cut(text, at, min(stop, at + UNBROKEN))
        if cut == at:
            what = f"more than {UNBROKEN} characters without a word break"
            raise unsupported_value("input", f"texts of {what} are not installed here")
        ids += array("I", self.native(text[at:cut]))
        return cut


def _cut(text: str, at: int, stop: int) -> int:
    """The last place up to `stop` where openai-harmony may be cut off; `at` if there is none."""
    return stop if stop == len(text) else last_cut(text, at, stop)


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
