"""Takes the text of a call out of the JSON around it: `{"input": "…"}`, or under another key.

It comes in pieces of any size, each a JSON string body, and leaves in the same form as soon as it
is known. Knows no item and no event. What is not this JSON is kept as it was written: a call whose
text does not begin with `{"input": "` is all text; a quote that closes nothing is a quote; an
escape that JSON does not have stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Literal

import orjson

from trt_responses.tokens.pieces import escaped

TAIL = re.compile(r'"\s*\}?\s*')
PATIENCE = 256
"""The most characters of white space and braces that are kept waiting, since each look at them is a
match."""
PLAIN = re.compile(r'[^"\\]+')
SIMPLE = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
HEX = re.compile(r"[0-9A-Fa-f]*")
HIGH, LOW = range(0xD800, 0xDC00), range(0xDC00, 0xE000)

_State = Literal["head", "inside", "tail", "raw"]


class Unwrapper:
    """Extracts a call's text incrementally; output is append-only."""

    found: str | None = None

    def __init__(self, key: str = "input") -> None:
        self._whole_head, self._head_so_far = _heads(key)
        self._state: _State = "head"
        self._waiting = ""
        self._out: list[str] = []

    def feed(self, pieces: Sequence[bytes]) -> list[bytes]:
        pieces_out = []
        for piece in pieces:
            self._read(self._waiting + orjson.loads(b'"%b"' % piece))
            if self._out:
                pieces_out.append(escaped("".join(self._out)))
                self._out.clear()
        return pieces_out

    def finish(self, *, whole: bool) -> list[bytes]:
        """The rest of the text, which has ended. Of a whole one, what never became JSON is text
        after all."""
        waiting, self._waiting = self._waiting, ""
        if not whole or self._state == "tail":
            return []
        if self._state == "head" and not waiting.strip(" \t\r\n{}"):
            return []  # a call without an input
        return [escaped(waiting)] if waiting else []

    def _read(self, text: str) -> None:
        """Read until nothing is left, or the rest cannot be sent yet."""
        while text and (step := self._step(text)):
            text = text[step:]
        self._waiting = text

    def _step(self, text: str) -> int:
        match self._state:
            case "head":
                return self._head(text)
            case "inside":
                return self._inside(text)
            case "tail":
                return self._tail(text)
            case "raw":
                self._out.append(text)
                return len(text)

    def _head(self, text: str) -> int:
        if head := self._whole_head.match(text):
            self._state = "inside"
            return head.end()
        if len(text) > PATIENCE or not self._head_so_far.fullmatch(text):
            self._state = "raw"
            self._out.append(text)
            return len(text)
        return 0

    def _inside(self, text: str) -> int:
        if plain := PLAIN.match(text):
            self._out.append(plain[0])
            return plain.end()
        if text[0] == '"':
            self._state = "tail"
            return self._tail(text)
        return self._escape(text)

    def _tail(self, text: str) -> int:
        """Read behind a quote: it closes the text, unless something else than the end follows."""
        if len(text) <= PATIENCE and TAIL.fullmatch(text):
            return 0
        self._state = "inside"
        self._out.append('"')
        return 1

    def _escape(self, text: str) -> int:
        if len(text) == 1:
            return 0
        if text[1] != "u":
            self._out.append(SIMPLE.get(text[1], text[:2]))
            return 2
        return self._code(text)

    def _code(self, text: str) -> int:
        r"""Read `\uXXXX`, of which two may stand for one character."""
        code, digits = _hex(text)
        if len(digits) < 4:
            if len(text) == 2 + len(digits):
                return 0
            self._out.append(text[: 2 + len(digits)])
            return 2 + len(digits)
        if code in HIGH:
            return self._pair(code, text)
        self._out.append("\ufffd" if code in LOW else chr(code))
        return 6

    def _pair(self, high: int, text: str) -> int:
        behind = text[6:12]
        low, digits = _hex(behind) if behind.startswith("\\u") else (0, "")
        may_follow = behind in ("", "\\") or (
            behind.startswith("\\u") and len(behind) == 2 + len(digits) < 6
        )
        if may_follow:
            return 0
        if len(digits) == 4 and low in LOW:
            self._out.append(chr(0x10000 + (high - HIGH.start) * 0x400 + low - LOW.start))
            return 12
        self._out.append("\ufffd")
        return 6


@cache
def _heads(key: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What stands before a text, and what may still become that; both for a key of letters. The
    latter is matched as a whole."""
    so_far = r'("\s*(:\s*)?)?'
    for letter in reversed(key):
        so_far = f"({letter}{so_far})?"
    head = re.compile(rf'\s*\{{\s*"{key}"\s*:\s*"')
    return head, re.compile(rf'\s*(\{{\s*(\}}\s*|"{so_far})?)?')


def _hex(escape: str) -> tuple[int, str]:
    r"""The digits behind `\u`, four at most, and their value."""
    found = HEX.match(escape[2:6])
    digits = found[0] if found else ""
    return int(digits or "0", 16), digits
