"""A reader that says how likely each token was; it is slower, and chosen before the first id.

Reads one id at a time. Text that was held back is told with all the tokens that it waited for; what
turns out to be a part of a mark, or of a call, has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.language.fragments import Closed, Opened, Scored, Text
from trt_responses.language.logprobs import token_logprob
from trt_responses.templates.read.reader import TemplateReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.engine.base import Logprob
    from trt_responses.language.fragments import Fragment
    from trt_responses.wire.output import TokenLogprob


class ScoredTemplateReader(TemplateReader):
    """Give it what the engine says of ids by `take_logprobs`, then the ids by `feed`."""

    _logprobs: Sequence[Logprob] = ()
    _waiting: tuple[TokenLogprob, ...] = ()
    """Of ids whose text has not been told yet."""

    def take_logprobs(self, logprobs: Sequence[Logprob]) -> None:
        self._logprobs = logprobs

    @property
    def plain(self) -> Mapping[int, bytes]:
        return {}

    def text(self, token_ids: Sequence[int], said: list[bytes]) -> bool:
        """There is no short way."""
        return False

    def feed(self, token_ids: Sequence[int]) -> list[Fragment]:
        logprobs, self._logprobs = self._logprobs, ()
        told: list[Fragment] = []
        for place, token_id in enumerate(token_ids):
            in_call = self.recipient is not None
            fragments = super().feed((token_id,))
            known = place < len(logprobs) and logprobs[place].token_id == token_id
            if known and not in_call and not any(type(f) is Closed for f in fragments):
                self._waiting += (token_logprob(logprobs[place], self._bytes_of),)
            told += map(self._scored, fragments)
        return told

    def finish(self, *, stopped: bool) -> list[Fragment]:
        return list(map(self._scored, super().finish(stopped=stopped)))

    def _scored(self, fragment: Fragment) -> Fragment:
        if type(fragment) is Closed or (type(fragment) is Opened and fragment.recipient):
            self._waiting = ()
        if type(fragment) is not Text:
            return fragment
        first, self._waiting = self._waiting, ()
        return Scored(fragment.pieces, [first, *(() for _ in fragment.pieces[1:])])

    def _bytes_of(self, token_id: int) -> bytes | None:
        known = self._tables.token_bytes
        return known[token_id] if 0 <= token_id < len(known) else None
