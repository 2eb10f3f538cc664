"""Finds the exact ends of o200k's pre-tokens in bounded steps.

They are needed where no cheap cut is near (`tokens/cuts.py`). It has no ids and no ranks. It
derives a character's class from openai-harmony, whose Unicode tables are newer than Python's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator

PIECE = 128
"""Characters classified per look-up: a millisecond if all are new, else 5 µs."""
PIECES = 16
"""Pieces of a run between two pauses, if all their characters are known."""
SEVERAL = 126
"""Digits returned as one pre-token: a multiple of three, so it ends where one does."""

_WHITE = "\t\v\f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_BEFORE_WORD = re.compile(rf"[ {_WHITE}][^\s]|[ {_WHITE}][\x1c-\x1f]")
_CONTRACTION = re.compile(r"'(?:s|t|re|ve|m|ll|d)", re.IGNORECASE)

_LETTERLIKE = frozenset("Uwbm")
_OTHER = frozenset("!/")
_UPPERS = re.compile("[Ubm]*")
_LOWERS = re.compile("[wbm]*")
_DIGITS = re.compile("0*")
_OTHERS = re.compile("[!/m]*")
_TAIL = re.compile("[n/]*")
_WHITES = re.compile("[ tn]*")


def looks_ahead(text: str, at: int) -> bool:
    """Whether a cut here would hide the next word from white space's look-ahead `\\s+(?!\\S)`."""
    return at < len(text) and _BEFORE_WORD.match(text, at - 1) is not None


class Shapes(dict[int, str]):
    """A table for `str.translate` of characters' classes, probed once each with the encoder.

    U upper case, w lower case, b both (letters without case), m marks (both, and also others),
    0 numbers, ! others, / itself, n line ends, t white space but the space.
    """

    def __init__(self, native: Callable[[str], list[int]]) -> None:
        super().__init__()
        self._native = native
        self._s = native("'s")
        self._23 = native("23")
        self._word = native("亚洲AVß")[0]
        for shape, characters in {
            "U": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
            "w": "abcdefghijklmnopqrstuvwxyz",
            "0": "0123456789",
            "n": "\r\n",
            "t": _WHITE,
            " ": " ",
            "/": "/",
            "b": "片",  # the one character that merges with the word of the probe
        }.items():
            self.update(dict.fromkeys(map(ord, characters), shape))

    def __missing__(self, code: int) -> str:
        shape = self[code] = self._probe(chr(code))
        return shape

    def _probe(self, c: str) -> str:
        """The class of a character. Each probe puts it where its class moves a known boundary."""
        native = self._native
        if native(c + "'s")[-1:] != self._s:
            return "!"
        if native(f"1{c}23")[-1:] != self._23:
            return "0"
        if native("亚洲AV" + c)[:1] != [self._word]:
            return "U"
        if self._word not in native(c + "亚洲AVß"):
            return "w"
        return "b" if native(f"!!{c}'s")[-1:] == self._s else "m"


class Scanner:
    """Finds exact ends of pre-tokens, from a place where one starts."""

    __slots__ = ("_learnt", "_number", "_piece", "_shapes", "_text")

    def __init__(self, text: str, shapes: Shapes) -> None:
        self._text = text
        self._shapes = shapes
        self._number = -1
        self._learnt = False
        self._piece = ""

    def end(self, start: int) -> Generator[None, None, int]:
        """The end of the pre-token that starts here; digits may be several pre-tokens."""
        first = self._shape(start)
        if first in _LETTERLIKE:
            return (yield from self._letters(start))
        if first == "0":
            return (yield from self._numbers(start))
        if first != "n" and self._shape(start + 1) in _LETTERLIKE:
            return (yield from self._letters(start + 1))
        if first in _OTHER:
            return (yield from self._others(start))
        if first == " " and self._shape(start + 1) in _OTHER:
            return (yield from self._others(start + 1))
        return (yield from self._white(start))

    def _letters(self, start: int) -> Generator[None, None, int]:
        uppers = yield from self._run(_UPPERS, start)
        end = yield from self._run(_LOWERS, uppers)
        if end == uppers and (both := (yield from self._last("bm", start, uppers))) is not None:
            end = both + 1  # no lower case follows, so the last caseless letter is the lower part
        contraction = _CONTRACTION.match(self._text, end)
        return contraction.end() if contraction else end

    def _numbers(self, start: int) -> Generator[None, None, int]:
        end = yield from self._run(_DIGITS, start, start + SEVERAL)
        return min(end, start + SEVERAL)

    def _others(self, start: int) -> Generator[None, None, int]:
        end = yield from self._run(_OTHERS, start)
        return (yield from self._run(_TAIL, end))

    def _white(self, start: int) -> Generator[None, None, int]:
        end = yield from self._run(_WHITES, start)
        line = yield from self._last("n", start, end)
        if line is not None:
            return line + 1
        return end if end == len(self._text) or end == start + 1 else end - 1

    def _shape(self, at: int) -> str:
        if at // PIECE != self._number:
            self._number = at // PIECE
            low = self._number * PIECE
            known = len(self._shapes)
            self._piece = self._text[low : low + PIECE].translate(self._shapes)
            self._learnt = len(self._shapes) > known
        return self._piece[at % PIECE : at % PIECE + 1]

    def _run(
        self, kinds: re.Pattern[str], start: int, stop: int | None = None
    ) -> Generator[None, None, int]:
        """The end of the run of these classes."""
        at = start
        while self._shape(at):
            run = kinds.match(self._piece, at % PIECE)
            length = run.end() - at % PIECE if run else 0
            at += length
            if at % PIECE or not length or (stop is not None and at >= stop):
                break
            if self._learnt or at // PIECE % PIECES == 0:
                yield
        return at

    def _last(self, kinds: str, start: int, end: int) -> Generator[None, None, int | None]:
        """The last place of these classes in the stretch, searched backwards."""
        while end > start:
            self._shape(end - 1)
            low = self._number * PIECE
            here = max(start, low) - low
            at = max(self._piece.rfind(kind, here, end - low) for kind in kinds)
            if at >= 0:
                return low + at
            end = max(start, low)
            if self._number % PIECES == 0:
                yield
        return None
