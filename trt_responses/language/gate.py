"""A gate decides which ids of a steered segment count: it stands between engine and reader.

A gate knows where its segment ends, puts the dialect's own terminator in the place of whatever the
engine ended it with, and stops what departs from its guide. It knows ids and bytes; which segment
it belongs to, and what comes after it, is its plan's affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from trt_responses.schema.refusals import Departed, OutOfSteps, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.engine import Finish
    from trt_responses.errors import ApiError
    from trt_responses.schema.refusals import Departure


class Follower(Protocol):
    """Follows a guided text byte by byte (`schema/follow.py` has the one for schemas)."""

    def feed(self, piece: bytes) -> bool: ...

    @property
    def whole(self) -> bool:
        """Whether the text may end here."""
        ...

    @property
    def place(self) -> str | None:
        """The place in the JSON value at which the text ends; None if it is no value."""
        ...

    def departure(self, *, at_once: bool = False) -> Departure | None:
        """What is wrong with a whole text; None when nothing is. `at_once`: raises `OutOfSteps`
        where that would take a while."""
        ...


class Words:
    """Follows a text that must be one of some words."""

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


class Gate:
    """The gate of one segment. After `admit` and `finish`, `over` and `fault` say how the segment
    stands."""

    over = False
    """Whether the segment has ended; whatever else comes is discarded."""
    fault: ApiError | None = None
    """The reason why the output is not what the guide says."""
    ended_by: int | None = None
    """The id that ended the segment, if one did."""
    unjudged = False
    """Whether the segment is over and `judge` has yet to say if its text is right."""

    def __init__(
        self, ends: frozenset[int], closing: tuple[int, ...], *, may_be_cut: bool = False
    ) -> None:
        self._ends = ends
        self._closing = closing
        self._may_be_cut = may_be_cut
        self.discarded: list[int] = []
        """The ids that came and do not count, but for the one that ended the segment."""

    def admit(self, token_ids: Sequence[int]) -> Sequence[int]:
        """The ids that count, of those that came."""
        if self.over:
            self.discarded += token_ids
            return ()
        if self._ends.isdisjoint(token_ids):
            return token_ids
        self.over = True
        end = next(n for n, token_id in enumerate(token_ids) if token_id in self._ends)
        self.ended_by = token_ids[end]
        self.discarded += token_ids[end + 1 :]
        return (*token_ids[:end], *self._closing)

    def finish(self, finish: Finish) -> Sequence[int]:
        """The ids that close a segment which the engine has ended without an id."""
        if self.over or not (finish == "stop" or (finish == "length" and self._may_be_cut)):
            return ()
        self.over = True
        return self._closing

    def judge(self) -> Sequence[int]:
        """Judge the text. Returns the ids that close the segment, or none when `fault` says why
        not. It may be called in a thread."""
        return self._closing


class GuidedGate(Gate):
    """A gate that follows the text: a guide is trusted only as far as it is checked."""

    def __init__(
        self,
        ends: frozenset[int],
        closing: tuple[int, ...],
        follower: Follower,
        token_bytes: Sequence[bytes],
        what: str,
    ) -> None:
        """`token_bytes` by id: empty, or none, of a control id."""
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
                # A guide that is over and does not end: its text is whole without the rest.
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
        """The bytes of an ordinary id; a control id has none."""
        return self._token_bytes[token_id] if 0 <= token_id < len(self._token_bytes) else b""

    def _end(self, odd: int | None = None) -> Sequence[int]:
        """End the segment. `odd` is the id that ended it and may not follow, if there was one."""
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
