"""Reads calls that look like a function's call: `get_weather(city='Oslo', days=2)`.

Brackets, the sign behind a key and the quotes come from the form. Values are texts in quotes,
lists, objects, numbers and words. A call is read when it is complete. No ids and no fragments here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from trt_responses.dialects.templates.read.arguments import PYTHON
from trt_responses.dialects.templates.read.body import SignedBody, split

QUOTE = chr(0xDBFF)
"""Stands in for quotes that are several characters."""
DEPTH = 32
"""Maximum depth of lists and objects."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_WORD = re.compile(r"[^\s,\[\](){}:=]+")
_WHITE = re.compile(r"\s*")
_OPEN, _CLOSE = "([{", ")]}"


class Unreadable(ValueError):
    """The text is no call."""


class LiteralBody(SignedBody):
    """A name, and arguments between brackets."""

    def _set_up(self) -> None:
        assert self._form.tags is not None
        super()._set_up()
        self._equals = self._form.tags.key_end.strip()
        self._mark = self._signs.sign(self._form.tags.quotes)
        """The quotes; if they are several characters, `QUOTE` replaces them in the text."""
        quote = QUOTE if len(self._mark) > 1 else self._mark
        self._quotes = quote + ('"' if quote == "'" else "")
        """The quotes that a model may write."""
        self._scanned = self._depth = 0
        self._quote = ""
        self._complete = False

    def closes(self) -> bool:
        return not self._quote

    def _step(self) -> bool:
        if not self._complete:
            self._scan()
            if not self._complete:
                return False
            text, self._text = self._text[: self._scanned], self._text[self._scanned :]
            self._read(text)
        if not self._form.close:
            self.over = True
            return False
        before, mark, behind = split(self._text, (self._form.close,))
        if mark is None:
            return False
        self._stray(before)
        self._text, self.over = behind, True
        return False

    def finish(self, *, closed: bool) -> None:
        if self._complete:
            self._stray(self._text)

    def _scan(self) -> None:
        """Find the bracket that ends the call."""
        while self._scanned < len(self._text) and not self._complete:
            if len(self._mark) > 1 and not self._replaced():
                return
            sign = self._text[self._scanned]
            if sign == self._quote and not _next_sign(self._text, self._scanned + 1):
                return
            self._scanned += 1
            if self._quote:
                if sign == "\\" and self._quote in "'\"":
                    self._scanned += 1
                elif sign == self._quote and _ends_text(self._text, self._scanned):
                    self._quote = ""
            elif sign in self._quotes:
                self._quote = sign
            elif sign in _OPEN:
                self._depth += 1
            elif sign in _CLOSE:
                self._depth -= 1
                self._complete = self._depth <= 0

    def _replaced(self) -> bool:
        """Replace quotes that begin here; False if more text is needed to see whether they do."""
        rest = self._text[self._scanned : self._scanned + len(self._mark)]
        if rest == self._mark:
            behind = self._text[self._scanned + len(rest) :]
            self._text = self._text[: self._scanned] + QUOTE + behind
        return rest == self._mark or not self._mark.startswith(rest)

    def _plain(self, text: str) -> str:
        """The text with each mark spelled out."""
        return self._signs.plain(text.replace(QUOTE, self._mark))

    def _read(self, text: str) -> None:
        try:
            name, arguments = _Reader(text, self._equals, self._quotes, self._plain).call()
        except (Unreadable, RecursionError):
            return
        before = self._form.before_name.strip()
        if self._named(self._plain(name.strip()).removeprefix(before)) is None:
            return
        self._sink.arguments(json.dumps(arguments, ensure_ascii=False))
        self.whole = True


def _next_sign(text: str, at: int) -> str:
    """The first sign from this place on that is no white space."""
    white = _WHITE.match(text, at)
    at = white.end() if white else at
    return text[at : at + 1]


def _ends_text(text: str, at: int) -> bool:
    """Whether a quote before this place ends its text: templates write texts without escapes."""
    return _next_sign(text, at) in ("", *",)]}:=")


class _Reader:
    """Reads one call from its text."""

    def __init__(self, text: str, equals: str, quotes: str, plain: Callable[[str], str]) -> None:
        """`plain` spells out the marks in a text."""
        self._text, self._equals, self._quotes, self._plain = text, equals, quotes, plain
        self._at = 0

    def call(self) -> tuple[str, dict[str, Any]]:
        begin = min((at for sign in _OPEN if (at := self._text.find(sign)) >= 0), default=-1)
        if begin < 0:
            raise Unreadable
        self._at = begin + 1
        members = self._members(self._equals, 0)
        if self._next():
            raise Unreadable
        return self._text[:begin], members

    def _members(self, equals: str, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not self._ends():
            key = self._string(sign) if (sign := self._next()) in self._quotes else self._word()
            self._expect(equals)
            members[key] = self._value(depth + 1)
        return members

    def _ends(self) -> bool:
        """Whether the closing bracket follows; a comma before it is left out."""
        while (sign := self._next()) == ",":
            self._at += 1
        if sign and sign in _CLOSE:
            self._at += 1
            return True
        return False

    def _next(self) -> str:
        found = _WHITE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def _expect(self, sign: str) -> None:
        if self._next() not in (sign, ":"):
            raise Unreadable
        self._at += 1

    def _value(self, depth: int) -> Any:
        if depth > DEPTH:
            raise Unreadable
        sign = self._next()
        if sign and sign in self._quotes:
            return self._string(sign)
        if sign == "[":
            self._at += 1
            values = []
            while not self._ends():
                values.append(self._value(depth + 1))
            return values
        if sign == "{":
            self._at += 1
            return self._members(":", depth)
        return _typed(self._word())

    def _word(self) -> str:
        word = _WORD.match(self._text, self._at)
        if word is None:
            raise Unreadable
        self._at = word.end()
        return self._plain(word[0])

    def _string(self, quote: str) -> str:
        signs: list[str] = []
        self._at += 1
        while True:
            sign = self._text[self._at : self._at + 1]
            if not sign:
                raise Unreadable
            if sign == quote and _ends_text(self._text, self._at + 1):
                break
            if sign == "\\" and quote in "'\"":
                self._at += 1
                escaped = self._text[self._at : self._at + 1]
                known = escaped in ("'", '"', "\\", *_ESCAPES)
                sign = _ESCAPES.get(escaped, escaped) if known else f"\\{escaped}"
            signs.append(sign)
            self._at += 1
        self._at += 1
        return self._plain("".join(signs))


def _typed(word: str) -> Any:
    """A number, a word of JSON or Python, or the word as text."""
    try:
        return json.loads(PYTHON.get(word, word))
    except ValueError:
        return word
