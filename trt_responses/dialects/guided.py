"""What the plans of all dialects share to hold a segment's text to a guide.

Works on ids and bytes; knows no dialect's marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trt_responses.engine import Finish
from trt_responses.language.gate import Gate
from trt_responses.schema.refusals import Departed, Departure, OutOfSteps, shown

RESERVE = 512
"""Tokens reserved for the answer after reasoning; half the budget if that is less."""


class Follower(Protocol):
    """Follows a guided text byte by byte (`schema/follow.py` has the one for schemas)."""

    def feed(self, piece: bytes) -> bool: ...

    @property
    def whole(self) -> bool:
        """Whether the text may end here."""
        ...

    @property
    def place(self) -> str | None:
        """The place in the JSON value at which the text ends; None if the text is not JSON."""
        ...

    def departure(self, *, at_once: bool = False) -> Departure | None:
        """The fault of a whole text, or None. With `at_once`, raises `OutOfSteps` if judging takes
        long."""
        ...


class Words:
    """Follows a text that must be one of a few words."""

    place = None

    def __init__(self, words: Sequence[str]) -> None:
        self.all = [word.encode() for word in words]
        self.text = b""

    def feed(self, piece: bytes) -> bool:
        longer = self.text + piece
        if not any(word.startswith(longer) for word in self.all):
            return False
        self.text = longer
        return True

    @property
    def whole(self) -> bool:
        return self.text in self.all

    def departure(self, *, at_once: bool = False) -> None:
        return None


class GuidedGate(Gate):
    """A gate that follows the text and checks it: it does not trust the engine's guide."""

    def __init__(
        self,
        ends: frozenset[int],
        closing: tuple[int, ...],
        follower: Follower,
        token_bytes: Sequence[bytes],
        what: str,
    ) -> None:
        """`token_bytes` by id: empty or absent for a control id."""
        super().__init__(ends, closing)
        self._follower = follower
        self._token_bytes = token_bytes
        self._what = what

    def admit(self, token_ids: Sequence[int]) -> Sequence[int]:
        if self.over:
            self.discarded += token_ids
            return ()
        for place, token_id in enumerate(token_ids):
            ends = token_id in self._ends
            if ends or not self._follows(token_id):
                self.ended_by = token_id if ends else None
                self.discarded += token_ids[place + ends :]
                # The guide is complete and the engine goes on: the text is whole without the rest.
                return (*token_ids[:place], *self._end(None if ends else token_id))
        return token_ids

    def finish(self, finish: Finish) -> Sequence[int]:
        if self.over or finish == "error":
            return ()
        if finish == "length" and not self._follower.whole:
            return ()
        return self._end()

    def _follows(self, token_id: int) -> bool:
        raw = self._bytes_of(token_id)
        return bool(raw) and self._follower.feed(raw)

    def _bytes_of(self, token_id: int) -> bytes:
        """The bytes of an ordinary id; empty for a control id."""
        return self._token_bytes[token_id] if 0 <= token_id < len(self._token_bytes) else b""

    def _end(self, odd: int | None = None) -> Sequence[int]:
        """End the segment. `odd` is the id that ended it where it may not follow."""
        self.over = True
        if not self._follower.whole:
            self.fault = self._cut_short(odd)
            return ()
        try:
            return self._judged(self._follower.departure(at_once=True))
        except OutOfSteps:
            self.unjudged = True
            return ()

    def judge(self) -> Sequence[int]:
        self.unjudged = False
        return self._judged(self._follower.departure())

    def _judged(self, departure: Departure | None) -> Sequence[int]:
        if departure is None:
            return self._closing
        message = f"The model's output departed from {self._what} {departure}."
        self.fault = Departed(message, param=departure.place)
        return ()

    def _cut_short(self, odd: int | None) -> Departed:
        place = self._follower.place
        at = "" if place is None else f" at '{place}'"
        if odd is None:
            return Departed(
                f"The model's output ended before it fulfilled {self._what}{at}.", param=place
            )
        raw = self._bytes_of(odd)
        piece = repr(raw.decode("utf-8", "replace")) if raw else "a control token"
        why = f"{at}: {shown(piece)} may not stand there" if at else ""
        return Departed(f"The model's output departed from {self._what}{why}.", param=place)
