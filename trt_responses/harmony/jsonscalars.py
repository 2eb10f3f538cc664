"""Inside a string, inside a number: readings of a text, for `jsontext.Check`."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Protocol

import orjson

from trt_responses.harmony.jsontext import OVER, Open

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.harmony.jsontext import Seen, State
    from trt_responses.harmony.pattern import Pattern

NUMBER_BYTES = 1000
"""Python's own limit for a client's parser is 4300 digits."""

QUOTE, _BACKSLASH = b'"\\'
_HEX = frozenset(b"0123456789abcdefABCDEF")
_SIMPLE_ESCAPES = frozenset(b'"\\/bfnrt')
_PLAIN = frozenset(range(0x20, 0x80)) - {QUOTE, _BACKSLASH}


STRETCH = 64
"""Bytes that are not plain ASCII and wait to be read against a pattern, all at once."""


class Strings(Protocol):
    """Which strings may stand here."""

    @property
    def most_bytes(self) -> float: ...

    def takes(self, value: str) -> bool: ...


class AnyString:
    """Every string may stand here."""

    most_bytes = float("inf")

    def takes(self, value: str) -> bool:
        return True


ANY_STRING = AnyString()


class Numbers(Protocol):
    """Which numbers may stand here."""

    @property
    def integer(self) -> bool: ...

    def takes(self, value: Decimal) -> bool: ...


class InString(Open):
    """Inside a string. `_escape`: 0 none, 1 behind a backslash, 2 to 5 in hexadecimal digits."""

    __slots__ = ("_begin", "_escape", "_node", "_up")

    def __init__(self, node: Strings, begin: int, up: State, escape: int = 0) -> None:
        self._node, self._begin, self._up, self._escape = node, begin, up, escape

    def step(self, byte: int, text: Seen) -> Sequence[State]:
        if self._escape:
            return self._escaped(byte)
        if byte == QUOTE:
            return self._close(text)
        if byte == _BACKSLASH:
            return (self._with(1),)
        if byte < 0x20 or len(text) - self._begin > self._node.most_bytes:
            return ()
        return (self,)

    def _escaped(self, byte: int) -> Sequence[State]:
        after = {1: 0, 2: 3, 3: 4, 4: 5, 5: 0}[self._escape]
        if self._escape == 1 and byte == ord("u"):
            after = 2
        elif byte not in (_SIMPLE_ESCAPES if self._escape == 1 else _HEX):
            return ()
        return (self._with(after),)

    def _with(self, escape: int) -> State:
        return InString(self._node, self._begin, self._up, escape)

    def _close(self, text: Seen) -> Sequence[State]:
        value = string_at(text, self._begin)
        return (self._up,) if value is not None and self._node.takes(value) else ()

    @property
    def key(self) -> tuple[object, ...]:
        return ("text", id(self._node), self._begin, self._up.key, self._escape)


class InPattern(InString):
    """Inside a string that follows a pattern, which is at `_here` behind the byte `_mark`. A plain
    character is followed at once; others wait for the next that is plain, and not for long."""

    __slots__ = ("_here", "_mark", "_pattern")

    def __init__(self, pattern: Pattern, begin: int, up: State) -> None:
        super().__init__(ANY_STRING, begin, up)
        self._pattern, self._here, self._mark = pattern, pattern.begin, begin

    def step(self, byte: int, text: Seen) -> Sequence[State]:
        if self._escape or not (byte in _PLAIN or byte >= 0xC0):
            return super().step(byte, text)
        here, waiting = self._here, len(text) - 1 - self._mark
        if waiting and (byte in _PLAIN or waiting > STRETCH):
            here = self._after(text)
            waiting = 0
        if here and byte in _PLAIN:
            here = self._pattern.after(here, chr(byte))
        mark = len(text) if byte in _PLAIN else len(text) - 1 - waiting
        return (self._with(0, here, mark),) if here else ()

    def _after(self, text: Seen) -> int:
        read = string_at(text, self._mark)
        return 0 if read is None else self._pattern.after(self._here, read)

    def _with(self, escape: int, here: int | None = None, mark: int | None = None) -> InPattern:
        after = InPattern(self._pattern, self._begin, self._up)
        after._escape = escape
        after._here = self._here if here is None else here
        after._mark = self._mark if mark is None else mark
        return after

    def _close(self, text: Seen) -> Sequence[State]:
        return (self._up,) if self._pattern.ends(self._after(text)) else ()

    @property
    def key(self) -> tuple[object, ...]:
        return ("pattern", id(self._pattern), self._begin, self._up.key, self._escape)


def string_at(text: Seen, begin: int) -> str | None:
    """The value of what stands behind the byte there, bad UTF-8 replaced as the reader does it;
    None for half a surrogate."""
    written = text[begin + 1 :].decode("utf-8", "replace")
    try:
        value = orjson.loads(f'"{written}"')
    except orjson.JSONDecodeError:
        return None
    return str(value)


class InNumber:
    """Inside a number, which ends where something else begins."""

    __slots__ = ("_begin", "_node", "_place", "_up")

    def __init__(self, node: Numbers, begin: int, up: State, place: str) -> None:
        self._node, self._begin, self._up, self._place = node, begin, up, place

    def step(self, byte: int, text: Seen) -> Sequence[State]:
        place = _NUMBER[self._place].get(_CLASS.get(byte, ""))
        if place is not None and (place in _INTEGER or not self._node.integer):
            if len(text) - self._begin >= NUMBER_BYTES:
                return ()
            return (InNumber(self._node, self._begin, self._up, place),)
        return self._up.step(byte, text) if self._taken(text) else ()

    def whole(self, text: Seen) -> bool:
        return self._up is OVER and self._taken(text)

    def _taken(self, text: Seen) -> bool:
        number = text[self._begin :]
        if self._place not in _NUMBER_ENDS:
            return False
        try:
            return self._node.takes(Decimal(number.decode()))
        except InvalidOperation:  # an exponent of twenty digits
            return False

    @property
    def key(self) -> tuple[object, ...]:
        return ("digits", id(self._node), self._begin, self._up.key, self._place)


_CLASS = {ord("0"): "0", ord("-"): "-", ord("+"): "+", ord("."): ".", ord("e"): "e", ord("E"): "e"}
_CLASS |= dict.fromkeys(b"123456789", "1")
_NUMBER: dict[str, dict[str, str]] = {
    "minus": {"0": "zero", "1": "whole"},
    "zero": {".": "point", "e": "e"},
    "whole": {"0": "whole", "1": "whole", ".": "point", "e": "e"},
    "point": {"0": "part", "1": "part"},
    "part": {"0": "part", "1": "part", "e": "e"},
    "e": {"+": "sign", "-": "sign", "0": "power", "1": "power"},
    "sign": {"0": "power", "1": "power"},
    "power": {"0": "power", "1": "power"},
}
"""JSON's numbers: where one is, and what may come there."""
_NUMBER_ENDS = frozenset({"zero", "whole", "part", "power"})
_INTEGER = frozenset({"minus", "zero", "whole"})
