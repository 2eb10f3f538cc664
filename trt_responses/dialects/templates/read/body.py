"""What a call's body is, and how a mark that is text is found: held back as long as it may be one.

A body takes text, and marks that were one token; it says `opened` once it knows the name, then the
arguments as they come. What it cannot make sense of is told as a fault, and never raised. Knows no
ids and no fragments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trt_responses.dialects.templates.families import Calls


class Heard(Protocol):
    """Who is told what a body holds."""

    def opened(self, name: str) -> None: ...
    def out(self, text: str) -> None:
        """More of the arguments, as JSON text."""

    def fault(self) -> None:
        """Something had no place here, and is left out."""


def split(text: str, marks: Collection[str]) -> tuple[str, str | None, str]:
    """The text before the first of these marks, the mark, and what follows; without one, the text
    that is none, and behind it what may still become one."""
    found = [(at, -len(mark), mark) for mark in marks if mark and (at := text.find(mark)) >= 0]
    if found:
        at, _, mark = min(found)
        return text[:at], mark, text[at + len(mark) :]
    longest = max(map(len, marks), default=1)
    for at in range(max(0, len(text) - longest + 1), len(text)):
        if any(mark.startswith(text[at:]) for mark in marks):
            return text[:at], None, text[at:]
    return text, None, ""


class Body(ABC):
    """One call's. `over`: the text mark that closes it was found, and `rest` follows it."""

    def __init__(self, form: Calls, schemas: Mapping[str, object], heard: Heard) -> None:
        self.over = False
        self.whole = False
        """Its arguments are complete."""
        self.rest = ""
        self._form, self._schemas, self._heard = form, schemas, heard
        self._text = ""

    def feed(self, text: str) -> None:
        self._text += text
        while not self.over and self._step():
            pass
        if self.over:
            self.rest, self._text = self._text, ""

    def mark(self, mark: str) -> bool:
        """A mark of the row that was one token; False when it is text here."""
        return False

    def closes(self) -> bool:
        """Whether the closing mark, as one token, closes the call here."""
        return True

    @abstractmethod
    def finish(self, *, closed: bool) -> None:
        """End the call, `closed` by its mark, or cut."""

    @abstractmethod
    def _step(self) -> bool:
        """Take some text; False when there is nothing to be done before more has come."""

    def _named(self, text: str) -> str | None:
        """Open the call under the first word of this text."""
        words = text.split()
        if not words:
            return None
        self._heard.opened(words[0])
        if len(words) > 1:
            self._heard.fault()
        return words[0]

    def _stray(self, text: str) -> None:
        if text.strip():
            self._heard.fault()
