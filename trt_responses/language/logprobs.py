"""What an engine says of a token's likelihood, as the API tells it, and the readers that tell it.

Such a reader takes one id at a time, so that a piece of text and the tokens that make it up are
known together. Text that was held back is told once, with all the tokens that it waited for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from trt_responses.language.fragments import Closed, Opened, Scored, Text
from trt_responses.wire.output import TokenLogprob, TopLogprob

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trt_responses.engine import Logprob
    from trt_responses.language.fragments import Fragment

LEAST = -9999.0
"""The log probability of a token that could not be: JSON has no infinity."""


def token_logprob(chosen: Logprob, bytes_of: Callable[[int], bytes | None]) -> TokenLogprob:
    """The chosen token and the likeliest ones beside it, spelled out."""

    def told(token_id: int, logprob: float) -> tuple[str, float, tuple[int, ...]]:
        raw = bytes_of(token_id) or b""
        return raw.decode("utf-8", "replace"), max(logprob, LEAST), tuple(raw)

    top = tuple(TopLogprob(*told(*likely)) for likely in chosen.top)
    return TokenLogprob(*told(chosen.token_id, chosen.logprob), top)


class Scoring(ABC):
    """Put before a reader, makes it say how likely each token was. It is slower than the reader
    alone, and chosen before the first id.

    Give it what the engine says of ids by `take_logprobs`, then the ids by `feed`.
    """

    _logprobs: Sequence[Logprob] = ()
    _waiting: tuple[TokenLogprob, ...] = ()
    """The log probabilities of ids whose text has not been told yet."""

    @property
    @abstractmethod
    def _in_text(self) -> bool:
        """Whether the next id may be text that is told with its tokens."""

    @abstractmethod
    def _bytes_of(self, token_id: int) -> bytes | None: ...

    @abstractmethod
    def _read(self, token_id: int) -> list[Fragment]:
        """The fragments that the reader itself makes of an id."""

    @abstractmethod
    def _read_end(self, *, stopped: bool) -> list[Fragment]:
        """The fragments that the reader itself makes of the end."""

    def take_logprobs(self, logprobs: Sequence[Logprob]) -> None:
        self._logprobs = logprobs

    @property
    def plain(self) -> Mapping[int, bytes]:
        return {}

    def text(self, token_ids: Sequence[int], said: list[bytes]) -> bool:
        """False, always: text with likelihoods has no short way."""
        return False

    def feed(self, token_ids: Sequence[int]) -> list[Fragment]:
        logprobs, self._logprobs = self._logprobs, ()
        told: list[Fragment] = []
        for place, token_id in enumerate(token_ids):
            in_text = self._in_text
            fragments = self._read(token_id)
            # What a gate has put in an id's place is nothing that the engine has spoken of.
            known = place < len(logprobs) and logprobs[place].token_id == token_id
            if in_text and known and not any(type(f) is Closed for f in fragments):
                self._waiting += (token_logprob(logprobs[place], self._bytes_of),)
            told += map(self._scored, fragments)
        return told

    def finish(self, *, stopped: bool) -> list[Fragment]:
        return list(map(self._scored, self._read_end(stopped=stopped)))

    def _scored(self, fragment: Fragment) -> Fragment:
        if type(fragment) is Closed or (type(fragment) is Opened and fragment.recipient):
            self._waiting = ()  # they were no text, but a part of a mark
        if type(fragment) is not Text:
            return fragment
        first, self._waiting = self._waiting, ()
        return Scored(fragment.pieces, [first, *(() for _ in fragment.pieces[1:])])
