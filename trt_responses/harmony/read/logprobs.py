"""A Harmony reader that also returns log probabilities."""

from __future__ import annotations

from trt_responses.harmony.read.reader import Reader
from trt_responses.language.fragments import Fragment
from trt_responses.language.logprobs import Scoring


class ScoredReader(Scoring, Reader):
    """A reader that returns all text, that of calls too, with log probabilities."""

    @property
    def _in_text(self) -> bool:
        return self._state in ("content", "held")

    def _bytes_of(self, token_id: int) -> bytes | None:
        return self._raw(token_id)

    def _read(self, token_id: int) -> list[Fragment]:
        return Reader.feed(self, (token_id,))

    def _read_end(self, *, stopped: bool) -> list[Fragment]:
        return Reader.finish(self, stopped=stopped)
