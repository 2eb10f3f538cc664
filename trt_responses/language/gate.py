"""Gates: which ids of a steered segment count. A gate is between the engine and the reader.

A gate finds the end of its segment, replaces the id that ended it by the dialect's terminator, and
may stop output that departs from a guide. Its plan decides which segment it belongs to and what
follows.
"""

from __future__ import annotations

from collections.abc import Sequence

from trt_responses.engine import Finish
from trt_responses.errors import ApiError


class Gate:
    """The gate of one segment. `admit` and `finish` update `over` and `fault`."""

    over = False
    """Whether the segment has ended; later ids are discarded."""
    fault: ApiError | None = None
    """How the output departs from the guide."""
    ended_by: int | None = None
    """The id that ended the segment, if one did."""
    unjudged = False
    """Whether the segment is over and `judge` has yet to judge its text."""

    def __init__(
        self, ends: frozenset[int], closing: tuple[int, ...], *, may_be_cut: bool = False
    ) -> None:
        self._ends = ends
        self._closing = closing
        self._may_be_cut = may_be_cut
        self.discarded: list[int] = []
        """The ids that do not count, without the one that ended the segment."""

    def admit(self, token_ids: Sequence[int]) -> Sequence[int]:
        """The ids that count, of these."""
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
        """The ids that close a segment when the engine ended it without an id."""
        if self.over or not (finish == "stop" or (finish == "length" and self._may_be_cut)):
            return ()
        self.over = True
        return self._closing

    def judge(self) -> Sequence[int]:
        """Judge the text. Returns the ids that close the segment, or none and sets `fault`. May run
        in a thread."""
        return self._closing
