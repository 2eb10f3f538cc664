"""The messages of one generation as they are read: which ids are of which.

Knows spans and fragments; knows no mark and no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.language.fragments import Closed
from trt_responses.language.reader import ReaderBase, Span

if TYPE_CHECKING:
    from trt_responses.language.fragments import Opened
    from trt_responses.language.reader import ReaderOptions


class Messages(ReaderBase):
    """`kept` are the ids that count, in order; `messages` are those that have ended."""

    def __init__(self, options: ReaderOptions) -> None:
        super().__init__(options)
        self._opened: Opened | None = None
        self._body_start = 0

    @property
    def recipient(self) -> str | None:
        """To whom the message is that is open now."""
        return None if self._opened is None else self._opened.recipient

    def _open(self, opened: Opened) -> None:
        self._add(opened)
        self._opened = opened
        self._body_start = max(self._start, len(self.kept) - 1)

    def _end_message(self, token_id: int | None, *, whole: bool, before_mark: bool) -> None:
        """End the open message, if one is open."""
        if self._opened is None:
            return
        self._add(Closed(whole))
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
