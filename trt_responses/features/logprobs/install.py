"""Log probabilities: an engine's in the API's form, and a reader that attaches them to text.

Such a reader reads one id at a time, to match each piece of text with its tokens. Text that was
held back is returned once, with all its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trt_responses.accept.accepted import Accepted
from trt_responses.engine import Chunk, Logprob
from trt_responses.errors import unsupported_value
from trt_responses.feature import Step
from trt_responses.language.fragments import Closed, Fragment, Opened, Scored, Text
from trt_responses.language.reader import Reader
from trt_responses.run.draft import Draft
from trt_responses.run.sink import Sink
from trt_responses.setup.server import Server
from trt_responses.wire.judge import LOGPROBS
from trt_responses.wire.output import TokenLogprob, TopLogprob

LEAST = -9999.0
"""The log probability of an impossible token: JSON has no infinity."""


def token_logprob(chosen: Logprob, bytes_of: Callable[[int], bytes | None]) -> TokenLogprob:
    """The chosen token and the likeliest alternatives, with their text and bytes."""

    def spell(token_id: int, logprob: float) -> tuple[str, float, tuple[int, ...]]:
        raw = bytes_of(token_id) or b""
        return raw.decode("utf-8", "replace"), max(logprob, LEAST), tuple(raw)

    top = tuple(TopLogprob(*spell(*likely)) for likely in chosen.top)
    return TokenLogprob(*spell(chosen.token_id, chosen.logprob), top)


class ScoredReader:
    """A reader that returns log probabilities, too. Slower than the reader alone; chosen before the
    first id.

    Pass the engine's log probabilities to `take_logprobs`, then the ids to `feed`.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._logprobs: Sequence[Logprob] = ()
        self._waiting: tuple[TokenLogprob, ...] = ()
        """Log probabilities of ids whose text has not been returned yet."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def take_logprobs(self, logprobs: Sequence[Logprob]) -> None:
        """Set the engine's log probabilities of the next ids passed to `feed`."""
        self._logprobs = logprobs

    @property
    def plain(self) -> Mapping[int, bytes]:
        return {}

    def text(self, token_ids: Sequence[int], out: list[bytes]) -> bool:
        """False: text with log probabilities has no fast path."""
        return False

    def feed(self, token_ids: Sequence[int]) -> list[Fragment]:
        reader, logprobs, self._logprobs = self._reader, self._logprobs, ()
        scored: list[Fragment] = []
        for place, token_id in enumerate(token_ids):
            in_text = reader.in_text
            fragments = reader.feed((token_id,))
            # A gate may have replaced an id: the engine's value is for another one.
            matches = place < len(logprobs) and logprobs[place].token_id == token_id
            if in_text and matches and not any(type(f) is Closed for f in fragments):
                self._waiting += (token_logprob(logprobs[place], reader.bytes_of),)
            scored += map(self._scored, fragments)
        return scored

    def finish(self, *, stopped: bool) -> list[Fragment]:
        return list(map(self._scored, self._reader.finish(stopped=stopped)))

    def _scored(self, fragment: Fragment) -> Fragment:
        if type(fragment) is Closed or (type(fragment) is Opened and fragment.recipient):
            self._waiting = ()  # these ids were part of a mark, not text
        if type(fragment) is not Text:
            return fragment
        first, self._waiting = self._waiting, ()
        return Scored(fragment.pieces, [first, *(() for _ in fragment.pieces[1:])])


class ScoredSink(Sink):
    """A sink that gives its reader the engine's log probabilities; no other sink knows of them."""

    def __init__(self, reader: ScoredReader, *parts: Any) -> None:
        super().__init__(reader, *parts)
        self._take_logprobs = reader.take_logprobs

    def push(self, chunk: Chunk) -> None:
        self._take_logprobs(chunk.logprobs)
        super().push(chunk)


def install(server: Server) -> None:
    server.features.append(Logprobs())


class Logprobs:
    """Tells clients how likely each token was."""

    reads = ("scored",)

    def accept(self, accepted: Accepted) -> Step | None:
        return LogprobsStep() if accepted.scored else None


class LogprobsStep(Step):
    """Has one run tell how likely each token was."""

    moves = False  # how likely each token was is not kept

    async def acquire(self, draft: Draft) -> None:
        """Refuse a number of likely tokens that the engine does not tell; None asks for none."""
        count, most = draft.accepted.sampling.logprobs, draft.parts.engine.limits().max_logprobs
        if count is None:
            return
        if most < 1:
            raise unsupported_value("include", f"this engine does not tell '{LOGPROBS}'")
        if count > most:
            raise unsupported_value(
                "top_logprobs", f"this engine tells {most} at most, got {count}"
            )

    def write(self, draft: Draft) -> None:
        if draft.accepted.scored and draft.answers:
            draft.reader, draft.sink = ScoredReader(draft.reader), ScoredSink
