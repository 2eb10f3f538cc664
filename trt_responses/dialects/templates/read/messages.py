"""Tracks the messages of one generation and their ids.

Works on spans and fragments: no marks and no families.
"""

from __future__ import annotations

from trt_responses.language.fragments import Closed, Opened
from trt_responses.language.reader import ReaderBase, ReaderOptions, Span


class Messages(ReaderBase):
    """The messages of one generation: `kept` holds the ids that count, `messages` the closed
    ones."""

    def __init__(self, options: ReaderOptions) -> None:
        super().__init__(options)
        self._opened: Opened | None = None
        self._body_start = 0

    @property
    def recipient(self) -> str | None:
        """The recipient of the open message."""
        return None if self._opened is None else self._opened.recipient

    def _open(self, opened: Opened) -> None:
        self._add(opened)
        self._opened = opened
        self._body_start = max(self._start, len(self.kept) - 1)

    def _end_message(self, token_id: int | None, *, whole: bool, before_mark: bool) -> None:
        """End the open message, if any."""
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
        """Drop the newest id from the ids that count."""
        self.kept.pop()
        self._drop(token_id)
