"""A reader that says how likely each token was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.dialects.templates.read.reader import TemplateReader
from trt_responses.language.logprobs import Scoring

if TYPE_CHECKING:
    from trt_responses.language.fragments import Fragment


class ScoredTemplateReader(Scoring, TemplateReader):
    """Of thoughts and answers: the text of a call is not what the model wrote, letter by letter."""

    @property
    def _in_text(self) -> bool:
        return self.recipient is None

    def _bytes_of(self, token_id: int) -> bytes | None:
        known = self._tables.token_bytes
        return known[token_id] if 0 <= token_id < len(known) else None

    def _read(self, token_id: int) -> list[Fragment]:
        return TemplateReader.feed(self, (token_id,))

    def _read_end(self, *, stopped: bool) -> list[Fragment]:
        return TemplateReader.finish(self, stopped=stopped)
