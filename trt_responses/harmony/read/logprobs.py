"""A reader that tells how likely each token was; slower, and chosen before the first id.

Reads one id at a time, so that a piece of text and the tokens that make it up are known together.
A character that is spread over several tokens is told once, with all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.harmony.read.reader import Reader
from trt_responses.language.fragments import Closed, Scored, Text
from trt_responses.wire.output import TokenLogprob, TopLogprob

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.engine.base import Logprob
    from trt_responses.harmony.read.reader import Tables
    from trt_responses.language.fragments import Fragment

LEAST = -9999.0
"""What the API says for a token that could not be: JSON has no infinity."""


class ScoredReader(Reader):
    """`hear` what the engine says of the ids, then `feed` them."""

    def __init__(self, tables: Tables, *, call_ends: bool = True) -> None:
        super().__init__(tables, call_ends=call_ends)
        self._bytes_of = tables.pieces.raw
        self._heard: Sequence[Logprob] = ()
        self._waiting: list[TokenLogprob] = []
        """Of ids whose text is not whole yet."""

    def hear(self, logprobs: Sequence[Logprob]) -> None:
        self._heard = logprobs

    @property
    def plain(self) -> Mapping[int, bytes]:
        return {}

    def text(self, token_ids: Sequence[int], said: list[bytes]) -> bool:
        """There is no short way."""
        return False

    def feed(self, token_ids: Sequence[int]) -> list[Fragment]:
        heard, self._heard = self._heard, ()
        told: list[Fragment] = []
        for place, token_id in enumerate(token_ids):
            in_text = self._state == "content"
            fragments = super().feed((token_id,))
            # What a gate has put in an id's place is nothing that the engine has spoken of.
            known = place < len(heard) and heard[place].token_id == token_id
            if in_text and known and not any(type(f) is Closed for f in fragments):
                self._waiting.append(self._entry(heard[place]))
            told += map(self._scored, fragments)
        return told

    def finish(self, *, stopped: bool) -> list[Fragment]:
        return list(map(self._scored, super().finish(stopped=stopped)))

    def _scored(self, fragment: Fragment) -> Fragment:
        if type(fragment) is not Text:
            return fragment
        first, self._waiting = tuple(self._waiting), []
        return Scored(fragment.pieces, [first, *(() for _ in fragment.pieces[1:])])

    def _entry(self, heard: Logprob) -> TokenLogprob:
        token, raw = self._spelled(heard.token_id)
        top = tuple(TopLogprob(*self._top(token_id, logprob)) for token_id, logprob in heard.top)
        return TokenLogprob(token, max(heard.logprob, LEAST), raw, top)

    def _top(self, token_id: int, logprob: float) -> tuple[str, float, tuple[int, ...]]:
        token, raw = self._spelled(token_id)
        return token, max(logprob, LEAST), raw

    def _spelled(self, token_id: int) -> tuple[str, tuple[int, ...]]:
        raw = self._bytes_of(token_id) or b""
        return raw.decode("utf-8", "replace"), tuple(raw)
