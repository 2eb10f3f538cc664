"""The seam of readers: the ids that a model writes in, fragments out, and which ids are whose.

Knows ids and fragments; knows no dialect, no item and no HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from trt_responses.language.fragments import Repaired, Text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trt_responses.engine import Logprob
    from trt_responses.language.fragments import Fragment, RepairKind
    from trt_responses.language.messages import FunctionTool


class ReaderOptions(NamedTuple):
    """The options by which one generation is read."""

    call_ends: bool = True
    """Whether the first call ends the turn."""
    ending: Collection[str] = ()
    """Recipients of whom any call ends the turn."""
    tools: Sequence[FunctionTool] = ()
    """The tools that were offered."""
    prompt: Sequence[int] = ()
    """The ids of the prompt."""


AS_USUAL = ReaderOptions()


class Span(NamedTuple):
    """The place of a closed message's own ids in `Reader.kept`.

    They begin with the mark that opens it, or behind that mark where the prompt wrote it.
    """

    start: int
    body_start: int  # behind the header
    end: int  # behind the terminator
    channel: str | None
    recipient: str | None
    content_type: str | None
    repaired: bool  # its ids are not what the dialect writes for its text: render it anew
    terminator: int | None
    answer_end: int = 0
    """Where a tool's answer to this call ends, which follows the call in the same generation."""
    held: Sequence[int] = ()
    """That answer as the block of the call holds it; nothing where it holds its ids."""

    @property
    def answer_tokens(self) -> int:
        return max(0, self.answer_end - self.end)

    @property
    def content_tokens(self) -> int:
        return self.end - self.body_start - (self.terminator is not None)

    @property
    def earlier(self) -> bool:
        """Whether an earlier generation wrote the call, so that only its answer stands here."""
        return self.start == self.end


class Reader(Protocol):
    """The reader of one generation. `feed` never raises, whatever the ids."""

    kept: list[int]
    """The ids that count, in order."""
    dropped: list[tuple[int, int]]
    """The ids that do not count, each with the number of ids that count before it."""
    messages: list[Span]
    """The span of each message that was opened and closed."""
    ended: bool
    """Whether it wants no more ids, since a turn has ended."""
    clear: bool
    """Whether it is inside a message's text with no bytes pending, so that an id of `plain` is its
    text as it stands."""
    call_ends: bool
    """Whether the first call ends the turn."""

    @property
    def plain(self) -> Mapping[int, bytes]:
        """The text of each id that is text by itself, for callers that look it up without `feed`:
        they must add the id to `kept`."""
        ...

    @property
    def recipient(self) -> str | None:
        """The recipient of the message that is open now."""
        ...

    def feed(self, token_ids: Sequence[int]) -> list[Fragment]:
        """Read the next ids, in chunks of any size. After the end they are discarded."""
        ...

    def text(self, token_ids: Sequence[int], said: list[bytes]) -> bool:
        """Read ids that are nothing but text of the open message, and append that to `said`. False
        when they are more than that: then nothing was read, and they belong to `feed`."""
        ...

    def take_back(self) -> None:
        """Forget a header that was begun as a trial."""
        ...

    def answer(self, token_ids: Sequence[int], held: Sequence[int] = ()) -> None:
        """Take a tool's answer to the call that ended the turn: its ids count too, and another turn
        begins behind them. `held` is what its block keeps of it."""
        ...

    def finish(self, *, stopped: bool) -> list[Fragment]:
        """Note that the engine has ended: `stopped` by itself, or cut."""
        ...


class ScoredReader(Reader, Protocol):
    """A reader that says how likely each token was."""

    def take_logprobs(self, logprobs: Sequence[Logprob]) -> None:
        """Take what the engine says of the ids that are fed next."""
        ...


class ReaderBase:
    """What every dialect's reader notes: the ids that count, the messages that have ended, and the
    fragments that were not given out yet."""

    def __init__(self, options: ReaderOptions) -> None:
        self.call_ends = options.call_ends
        self.ended = False
        self.clear = False
        """Whether it is inside a message's text with nothing held back, so that an id of `plain` is
        its text as it stands."""
        self.kept: list[int] = []
        self.dropped: list[tuple[int, int]] = []
        """The ids that do not count, each with the number of ids that count before it."""
        self.messages: list[Span] = []
        self._ending = options.ending
        self._start = 0
        """Where in `kept` the next message begins, or the one that is open."""
        self._repaired = False
        """Whether the message that is open, or comes next, was repaired."""
        self._pieces: list[bytes] = []
        """Pieces of text that are not among the fragments yet."""
        self._out: list[Fragment] = []

    def _drop(self, *token_ids: int) -> None:
        self.dropped += ((len(self.kept), token_id) for token_id in token_ids)

    def _repair(self, kind: RepairKind) -> None:
        self._repaired = True
        self._add(Repaired(kind))

    def _add(self, fragment: Fragment) -> None:
        self._add_text()
        self._out.append(fragment)

    def _add_text(self) -> None:
        if self._pieces:
            self._out.append(Text(self._pieces))
            self._pieces = []

    def _taken(self) -> list[Fragment]:
        """The fragments since the last call."""
        self._add_text()
        out, self._out = self._out, []
        return out
