"""Tokenises text made only of letters, digits and `+/=_-`, such as base64, with numpy.

Such text splits into pre-tokens of two or three characters, and most of them need merging.
openai-harmony merges them one by one; this module finds, looks up and merges those of a whole
stretch together, in half the time. The ids are exact. It implements o200k's rules for this alphabet
only, and returns None for text that openai-harmony tokenises faster.
"""

from __future__ import annotations

import re
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np

from trt_responses.features.dense_text.shorttokens import LONGEST, MISSING, ShortTokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from trt_responses.tokens.tokenise import Tokeniser

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

MOST = 4096
"""Characters per call: half a millisecond. Twice as many would cost a tenth less each."""
LEAST = 2048
"""The shortest stretch, in characters, that is faster here."""
LONGEST_PIECE = 16
"""Upper bound on a pre-token's length, and so on the rounds of merging."""
RARE = 128
"""The least characters per pre-token that is too long for `ShortTokens`. Base64 has 550."""

ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-"
_STRETCH = re.compile(r"[A-Za-z0-9+/=_-]*")
_UPPER, _LOWER, _DIGIT, _OTHER = range(4)
_CLASSES = bytes(
    _UPPER if c.isupper() else _LOWER if c.islower() else _DIGIT if c.isdigit() else _OTHER
    for c in map(chr, range(256))
)


def _starts_here(before: int, last: int, this: int) -> bool:
    """Whether a pre-token starts at a character, by its class and those of the two before it.

    A single character of class other joins the word after it. Digits come in threes; `_starts`
    counts them.
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
"""Packs two numbers as rank << 32 | place: the minimum is the lowest rank, leftmost first."""
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(LONGEST + 1)], np.uint64)


class Dense:
    """Tokenises dense stretches of text."""

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
        """The ids from `at`, the start of a pre-token, and their end; None if this is no faster."""
        stretch = _STRETCH.match(text, at, at + self._most)
        if stretch is None or stretch.end() - at < self._least:
            return None
        data = stretch.group().encode()
        start = _starts(data)
        if stretch.end() < len(text):  # only openai-harmony knows where the last one ends
            start = start[: 1 + int(start[:-1].nonzero()[0][-1])]
        place = start.nonzero()[0]
        if place.size == 1 or _slow(np.diff(place)):
            return None
        end = int(place[-1])
        return self._ids(data[:end], start).astype(np.uint32), at + end

    def _ids(self, data: bytes, start: Flags) -> Ints:
        """The ids: pre-tokens that are tokens as they are, the rest merged. Marks token starts in
        `start`."""
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
        """Merge each piece from `low` to `high`, and mark in `start` where its tokens start.

        A space follows each piece: no token here contains one, so pieces never merge together.
        """
        behind = (high - low + 1).cumsum()
        first = behind - (high - low + 1)
        source = np.arange(behind[-1]) + (low - first).repeat(high - low + 1)
        start[source] = True
        laid = np.frombuffer(data + b" ", np.uint8).take(source)
        laid[behind - 1] = ord(" ")
        for gone in _merges(_Bytes(laid.tobytes(), self._short, self._long), first):
            start[source.take(gone)] = False


class Later:
    """Makes `Dense` in a thread when a text first needs it: its tables take 0.2 s, and many
    servers never read such text. What comes meanwhile is left to openai-harmony."""

    def __init__(self, tokeniser: Tokeniser) -> None:
        self._tokeniser = tokeniser
        self._thread: Thread | None = None

    def encode(self, text: str, at: int) -> None:
        stretch = _STRETCH.match(text, at, at + LEAST)
        if self._thread is None and stretch and stretch.end() - at == LEAST:
            self._thread = Thread(target=self._make, name="dense text", daemon=True)
            self._thread.start()

    def _make(self) -> None:
        self._tokeniser.shortcut = Dense(self._tokeniser.token_bytes)


def _merges(pieces: _Bytes, first: Ints) -> Iterator[Ints]:
    """The places where no token starts any longer, round by round: each round merges the lowest
    pair of each piece, leftmost first."""
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
    """Bytes with a vectorised look-up of the ids of their parts."""

    __slots__ = ("_data", "_long", "_numbers", "_short")

    def __init__(self, data: bytes, short: ShortTokens, long: dict[bytes, int]) -> None:
        self._data = data
        self._short = short
        self._long = long
        self._numbers = np.ndarray((len(data),), "<u8", data + bytes(LONGEST), strides=(1,))
        """The eight bytes that start at each place, as one number."""

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
    """Whether pre-tokens of these lengths need many rounds or many single look-ups."""
    many = int(np.count_nonzero(length > LONGEST)) * RARE > int(length.sum())
    return many or int(length.max()) > LONGEST_PIECE


def _starts(data: bytes) -> Flags:
    """Flags of the places where pre-tokens start; the end is flagged too."""
    n = len(data)
    classes = np.full(n + 2, _DIGIT, np.uint8)  # two digits before the text do not change it
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
