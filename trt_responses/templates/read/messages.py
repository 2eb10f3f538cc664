"""The messages of one generation as they are read: which ids are of which, and what is told.

Knows spans and fragments; knows no mark and no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.language.fragments import Closed, Repaired, Text
from trt_responses.language.reader import Span

if TYPE_CHECKING:
    from trt_responses.language.fragments import Fragment, Opened, RepairKind


class Messages:
    """`kept` are the ids that count, in order; `messages` are those that have ended."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.dropped: list[tuple[int, int]] = []
        """Ids that do not count, each behind so many that do."""
        self.messages: list[Span] = []
        self._out: list[Fragment] = []
        self._pieces: list[bytes] = []
        """Text that has not been told yet."""
        self._opened: Opened | None = None
        self._start = self._body_start = 0
        self._repaired = False

    @property
    def recipient(self) -> str | None:
        """To whom the message is that is open now."""
        return None if self._opened is None else self._opened.recipient

    def _open(self, opened: Opened) -> None:
        self._tell(opened)
        self._opened = opened
        self._body_start = max(self._start, len(self.kept) - 1)

    def _end_message(self, token_id: int | None, *, whole: bool, before_mark: bool) -> None:
        """End the open message, if one is open."""
        if self._opened is None:
            return
        self._tell(Closed(whole))
        end = len(self.kept) - before_mark
        self.messages.append(
            Span(
                self._start,
                min(self._body_start, end),
                end,
                *self._opened,
                self._repaired,
                token_id,
            )
        )
        self._opened, self._start, self._repaired = None, end, False

    def _forget(self, token_id: int) -> None:
        """The newest id does not count after all."""
        self.kept.pop()
        self._drop(token_id)

    def _drop(self, token_id: int) -> None:
        self.dropped.append((len(self.kept), token_id))

    def _repair(self, kind: RepairKind) -> None:
        self._repaired = True
        self._tell(Repaired(kind))

    def _tell(self, fragment: Fragment) -> None:
        self._flush()
        self._out.append(fragment)

    def _flush(self) -> None:
        if self._pieces:
            self._out.append(Text(self._pieces))
            self._pieces = []

    def _told(self) -> list[Fragment]:
        self._flush()
        out, self._out = self._out, []
        return out
