"""A reader that says how likely each token was; it is slower, and chosen before the first id.

Reads one id at a time, so that a piece of text and the tokens that make it up are known together.
A character that is spread over several tokens is told once, with all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.harmony.read.reader import Reader
from trt_responses.language.fragments import Closed, Scored, Text
from trt_responses.language.logprobs import token_logprob

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trt_responses.engine.base import Logprob
    from trt_responses.harmony.read.reader import Tables
    from trt_responses.language.fragments import Fragment
    from trt_responses.wire.output import TokenLogprob


class ScoredReader(Reader):
    """Give it what the engine says of ids by `take_logprobs`, then the ids by `feed`."""

    def __init__(
        self, tables: Tables, *, call_ends: bool = True, ending: Collection[str] = ()
    ) -> None:
        super().__init__(tables, call_ends=call_ends, ending=ending)
        self._bytes_of = tables.pieces.raw
        self._logprobs: Sequence[Logprob] = ()
        self._waiting: list[TokenLogprob] = []
        """Of ids whose text is not whole yet."""

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
            in_text = self._state == "content"
            fragments = super().feed((token_id,))
            # What a gate has put in an id's place is nothing that the engine has spoken of.
            known = place < len(logprobs) and logprobs[place].token_id == token_id
            if in_text and known and not any(type(f) is Closed for f in fragments):
                self._waiting.append(token_logprob(logprobs[place], self._bytes_of))
            told += map(self._scored, fragments)
        return told

    def finish(self, *, stopped: bool) -> list[Fragment]:
        return list(map(self._scored, super().finish(stopped=stopped)))

    def _scored(self, fragment: Fragment) -> Fragment:
        if type(fragment) is not Text:
            return fragment
        first, self._waiting = tuple(self._waiting), []
        return Scored(fragment.pieces, [first, *(() for _ in fragment.pieces[1:])])
