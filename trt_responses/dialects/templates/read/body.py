"""The base of call bodies, and the search for marks in text: a possible mark is held back.

A body receives text, and marks that were one token. It calls `opened` when it knows the name, then
`arguments` with each piece, and `fault` for anything it cannot read; it never raises. No ids and no
fragments here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Protocol

from trt_responses.dialects.templates.families import Calls


class CallSink(Protocol):
    """Receives the content of a call."""

    def opened(self, name: str) -> None: ...
    def arguments(self, text: str) -> None:
        """The next piece of the arguments, as JSON text."""

    def fault(self) -> None:
        """Part of the call was unreadable and is left out."""


def split(text: str, marks: Collection[str]) -> tuple[str, str | None, str]:
    """The text before the first of these marks, the mark, and the rest. Without a mark: the text
    that is no mark, None, and the end that may still become one."""
    hits = [(at, -len(mark), mark) for mark in marks if mark and (at := text.find(mark)) >= 0]
    first, _, mark = min(hits, default=(len(text), 0, ""))
    longest = max(map(len, marks), default=1)
    for at in range(max(0, len(text) - longest + 1), min(len(text), first + 1)):
        if any(one.startswith(text[at:]) and one != mark for one in marks):
            return text[:at], None, text[at:]
    if mark:
        return text[:first], mark, text[first + len(mark) :]
    return text, None, ""


class Body(ABC):
    """Reads one call. `over`: its closing mark was found in text, and `rest` follows it."""

    def __init__(
        self,
        form: Calls,
        schemas: Mapping[str, object],
        sink: CallSink,
        tokens: Collection[str] = (),
    ) -> None:
        """`tokens`: the marks inside a call that are one token."""
        self.over = False
        self.whole = False
        """Whether its arguments are complete."""
        self.rest = ""
        self._form, self._schemas, self._sink = form, schemas, sink
        self._tokens = tokens
        self._text = ""
        self._set_up()

    @abstractmethod
    def _set_up(self) -> None:
        """Set up the state of this kind of body."""

    def feed(self, text: str) -> None:
        self._text += text
        while not self.over and self._step():
            pass
        if self.over:
            self.rest, self._text = self._text, ""

    def mark(self, mark: str) -> bool:
        """Handle a mark that was one token; False if it is text here."""
        return False

    def closes(self) -> bool:
        """Whether the closing mark, as one token, closes the call now."""
        return True

    @abstractmethod
    def finish(self, *, closed: bool) -> None:
        """End the call; `closed` by its mark, else cut."""

    @abstractmethod
    def _step(self) -> bool:
        """Consume some text; False if more text is needed."""

    def _named(self, text: str) -> str | None:
        """Open the call with the first word of this text as its name."""
        words = text.split()
        if not words:
            return None
        self._sink.opened(words[0])
        if len(words) > 1:
            self._sink.fault()
        return words[0]

    def _stray(self, text: str) -> None:
        if text.strip():
            self._sink.fault()


class StandIns:
    """Characters that stand in for marks that are one token. No output contains them: they are
    surrogates, which UTF-8 has not."""

    def __init__(self, marks: Collection[str]) -> None:
        self._signs = {mark: chr(0xD800 + place) for place, mark in enumerate(sorted(marks))}
        self._marks = {ord(sign): mark for mark, sign in self._signs.items()}

    def __contains__(self, mark: str) -> bool:
        return mark in self._signs

    def sign(self, text: str) -> str:
        """The text with a character for each mark."""
        for mark in sorted(self._signs, key=len, reverse=True):
            text = text.replace(mark, self._signs[mark])
        return text

    def plain(self, text: str) -> str:
        """The text with each mark spelled out."""
        return text.translate(self._marks) if self._marks else text


class SignedBody(Body):
    """A body whose marks may be one token: a character stands in for each."""

    def _set_up(self) -> None:
        self._signs = StandIns(self._tokens)

    def mark(self, mark: str) -> bool:
        if mark not in self._signs:
            return False
        self.feed(self._signs.sign(mark))
        return True
