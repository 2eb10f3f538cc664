"""Inside a string that must be one of some words, however each of its characters is spelled.

A character may stand for itself or be escaped, each time anew: guides leave a model the choice.
Readings of a text, for `jsontext.Check`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from trt_responses.harmony.jsontext import Open

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.harmony.jsontext import Seen, State

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_QUOTE, _BACKSLASH, _DELETE = ord('"'), ord("\\"), 0x7F
_LETTERS = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_SHORT = {char: f"\\{_LETTERS.get(char, char)}".encode() for char in (*_LETTERS, *'"\\/')}


class Sequel(Protocol[T_contra]):
    """What comes behind a word. Two of the same key agree on every word."""

    def behind(self, what: T_contra) -> State: ...

    @property
    def key(self) -> tuple[object, ...]: ...


class InWord(Open, Generic[T]):
    """`options` are the words that begin with the `count` characters read, each with what it
    stands for; `_begun` is the spelling of a character that is not whole yet."""

    __slots__ = ("_begin", "_begun", "_count", "_options", "_sequel")

    def __init__(
        self,
        sequel: Sequel[T],
        begin: int,
        options: Sequence[tuple[str, T]],
        count: int = 0,
        begun: bytes = b"",
    ) -> None:
        self._sequel, self._begin, self._options = sequel, begin, options
        self._count, self._begun = count, begun

    def step(self, byte: int, text: Seen) -> Sequence[State]:
        place = self._count
        if not self._begun:
            if byte == _QUOTE:
                return [self._sequel.behind(w) for word, w in self._options if len(word) == place]
            if 0x20 <= byte <= _DELETE and byte != _BACKSLASH:
                char = chr(byte)
                left = [o for o in self._options if len(o[0]) > place and o[0][place] == char]
                return self._with(left, place + 1, b"")
        begun = _even(self._begun + bytes((byte,)))
        longer = [option for option in self._options if len(option[0]) > place]
        whole = [option for option in longer if begun in _spellings(option[0][place])]
        if whole:
            return self._with(whole, place + 1, b"")
        return self._with([o for o in longer if _begins(begun, o[0][place])], place, begun)

    def _with(self, options: Sequence[tuple[str, T]], count: int, begun: bytes) -> Sequence[State]:
        return (InWord(self._sequel, self._begin, options, count, begun),) if options else ()

    @property
    def key(self) -> tuple[object, ...]:
        return ("word", self._begin, *self._sequel.key)


def _even(begun: bytes) -> bytes:
    """Digits of an escape count in either case; its `u` does not."""
    if begun[:2] != b"\\u":
        return begun
    return begun[:2] + begun[2:6].lower() + begun[6:8] + begun[8:].lower()


def _begins(begun: bytes, char: str) -> bool:
    return any(spelling.startswith(begun) for spelling in _spellings(char))


@lru_cache(maxsize=4096)
def _spellings(char: str) -> tuple[bytes, ...]:
    units = char.encode("utf-16-be").hex()
    escaped = "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4)).encode()
    plain = () if char < " " or char in '"\\' else (char.encode(),)
    return (*plain, *filter(None, [_SHORT.get(char)]), escaped)
