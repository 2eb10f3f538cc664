"""A template reader that also returns log probabilities."""

from __future__ import annotations

from trt_responses.dialects.templates.read.reader import TemplateReader
from trt_responses.language.fragments import Fragment
from trt_responses.language.logprobs import Scoring


class ScoredTemplateReader(Scoring, TemplateReader):
    """Returns log probabilities of thoughts and answers; a call's text is not the model's own
    spelling."""

    @property
    def _in_text(self) -> bool:
        return self.recipient is None

    def _bytes_of(self, token_id: int) -> bytes | None:
        table = self._tables.token_bytes
        return table[token_id] if 0 <= token_id < len(table) else None

    def _read(self, token_id: int) -> list[Fragment]:
        return TemplateReader.feed(self, (token_id,))

    def _read_end(self, *, stopped: bool) -> list[Fragment]:
        return TemplateReader.finish(self, stopped=stopped)
