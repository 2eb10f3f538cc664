"""Text of letters, digits and `+/=_-` alone, such as base64, to its exact ids, by numpy.

Such text falls into pre-tokens of two characters or three, most of which must be merged, and
openai-harmony takes them one by one. Here all of a stretch are found, looked up and merged side by
side, in half the time. Knows o200k's rules for this alphabet only, and leaves to openai-harmony
what would be slow here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from trt_responses.tokens.shorttokens import LONGEST, MISSING, ShortTokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

MOST = 4096
"""Characters taken at once: half a millisecond. Twice as many would save a tenth for each."""
LEAST = 2048
"""Characters from which it is worth it."""
LONGEST_PIECE = 16
"""Characters of a pre-token: so many rounds of merging there may be."""
RARE = 128
"""Characters to each pre-token longer than what `ShortTokens` knows. In base64 they are 550."""

ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-"
_STRETCH = re.compile(r"[A-Za-z0-9+/=_-]*")
_UPPER, _LOWER, _DIGIT, _OTHER = range(4)
_CLASSES = bytes(
    _UPPER if c.isupper() else _LOWER if c.islower() else _DIGIT if c.isdigit() else _OTHER
    for c in map(chr, range(256))
)


def _starts_here(before: int, last: int, this: int) -> bool:
    """Whether a pre-token starts with a character, by its class and those of the two before it.

    One of the others begins the word after it, if it stands alone. Digits, which come in threes,
    are counted elsewhere.
    """
    if this in (_OTHER, _DIGIT) or last == this:
        return last != this
    if last == _OTHER:
        return before == _OTHER
    return last == _DIGIT or this == _UPPER


_STARTS = np.array(
    [_starts_here(code >> 4, code >> 2 & 3, code & 3) for code in range(64)], np.bool_
)
_THREE_DIGITS = _DIGIT * 0b010101
_NEVER = MISSING << 32
_LOW = (1 << 32) - 1
"""Two numbers travel in one, rank << 32 | place: the least is the lowest rank, leftmost first."""
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(LONGEST + 1)], np.uint64)


class Dense:
    """The ids of dense stretches of text."""

    __slots__ = ("_least", "_long", "_most", "_short")

    def __init__(
        self, token_bytes: Sequence[bytes], *, least: int = LEAST, most: int = MOST
    ) -> None:
        tokens = {data: i for i, data in enumerate(token_bytes) if not data.strip(ALPHABET)}
        self._short = ShortTokens({d: i for d, i in tokens.items() if len(d) <= LONGEST})
        self._long = {d: i for d, i in tokens.items() if len(d) > LONGEST}
        self._least = least
        self._most = most

    def encode(self, text: str, at: int) -> tuple[NDArray[np.uint32], int] | None:
        """The ids from here, where a pre-token starts, and up to where; None if that is no use."""
        found = _STRETCH.match(text, at, at + self._most)
        if found is None or found.end() - at < self._least:
            return None
        data = found.group().encode()
        start = _starts(data)
        if found.end() < len(text):  # only openai-harmony knows where the last one ends
            start = start[: 1 + int(start[:-1].nonzero()[0][-1])]
        place = start.nonzero()[0]
        if place.size == 1 or _slow(np.diff(place)):
            return None
        end = int(place[-1])
        return self._ids(data[:end], start).astype(np.uint32), at + end

    def _ids(self, data: bytes, start: Flags) -> Ints:
        """Pre-tokens that are tokens, and the rest merged. `start` is told where tokens start."""
        text = _Bytes(data, self._short, self._long)
        place = start.nonzero()[0]
        ids = text.ids(place[:-1], place[1:])
        missed = (ids == MISSING).nonzero()[0]
        if missed.size:
            self._merge(data, place.take(missed), place.take(missed + 1), start)
            place = start.nonzero()[0]
            ids = text.ids(place[:-1], place[1:])
        return ids

    def _merge(self, data: bytes, low: Ints, high: Ints, start: Flags) -> None:
        """Merge what lies from `low` to `high`, piece by piece, and mark where its tokens start.

        The pieces are laid out with a space behind each: no token here holds one, so nothing
        merges across.
        """
        behind = (high - low + 1).cumsum()
        first = behind - (high - low + 1)
        origin = np.arange(behind[-1]) + (low - first).repeat(high - low + 1)
        start[origin] = True
        laid = np.frombuffer(data + b" ", np.uint8).take(origin)
        laid[behind - 1] = ord(" ")
        for gone in _merges(_Bytes(laid.tobytes(), self._short, self._long), first):
            start[origin.take(gone)] = False


def _merges(pieces: _Bytes, first: Ints) -> Iterator[Ints]:
    """Where tokens end to start: each round merges each piece's lowest pair, leftmost first."""
    here = np.arange(len(pieces))
    following, before = here + 1, np.roll(here, 1)
    pair = pieces.ids(here, here + 2) << 32 | here
    while True:
        best = np.minimum.reduceat(pair, first)
        left = best[best < _NEVER] & _LOW
        if not left.size:
            return
        gone = following.take(left)
        right = following.take(gone)
        yield gone
        pair[gone] = _NEVER
        following[left] = right
        before[right] = left
        earlier = before.take(left)
        changed = np.concatenate((left, earlier))
        ends = np.concatenate((following.take(right), right))
        pair[changed] = pieces.ids(changed, ends) << 32 | changed


class _Bytes:
    """Bytes of which many parts are looked up at once."""

    __slots__ = ("_data", "_long", "_numbers", "_short")

    def __init__(self, data: bytes, short: ShortTokens, long: dict[bytes, int]) -> None:
        self._data = data
        self._short = short
        self._long = long
        self._numbers = np.ndarray((len(data),), "<u8", data + bytes(LONGEST), strides=(1,))
        """The eight bytes from each place on."""

    def __len__(self) -> int:
        return len(self._data)

    def ids(self, low: Ints, high: Ints) -> Ints:
        """The id of each part, or MISSING."""
        length = high - low
        ids = self._short.find(self._numbers.take(low) & _MASKS.take(length, mode="clip"))
        for i in (length > LONGEST).nonzero()[0]:
            ids[i] = self._long.get(self._data[low[i] : high[i]], MISSING)
        return ids


def _slow(length: Ints) -> bool:
    """Whether pre-tokens of these lengths take many rounds, or many looks one by one."""
    many = int(np.count_nonzero(length > LONGEST)) * RARE > int(length.sum())
    return many or int(length.max()) > LONGEST_PIECE


def _starts(data: bytes) -> Flags:
    """Where pre-tokens start, and the end."""
    n = len(data)
    classes = np.full(n + 2, _DIGIT, np.uint8)  # two digits before the text change nothing in it
    classes[2:] = np.frombuffer(data.translate(_CLASSES), np.uint8)
    codes = classes[:-2] << 4 | classes[1:-1] << 2 | classes[2:]
    start = np.ones(n + 1, np.bool_)
    start[:-1] = _STARTS.take(codes)
    start[0] = True
    fourth = (codes[3:] == _THREE_DIGITS) & (classes[2:-3] == _DIGIT)
    if (later := fourth.nonzero()[0] + 3).size:
        run = np.maximum.accumulate(np.where(start, np.arange(n + 1), 0))
        start[later] = (later - run.take(later)) % 3 == 0
    return start
