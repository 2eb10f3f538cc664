"""The seam of readers: the ids that a model writes in, fragments out, and which ids are whose.

Knows ids and fragments; knows no dialect, no item and no HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from trt_responses.language.fragments import Repaired, Text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trt_responses.engine.base import Logprob
    from trt_responses.language.fragments import Fragment, RepairKind
    from trt_responses.language.messages import FunctionTool


class ReaderOptions(NamedTuple):
    """How one generation is to be read."""

    call_ends: bool = True
    """The first call is the end of a turn."""
    ending: Collection[str] = ()
    """So is any call to one of these recipients."""
    tools: Sequence[FunctionTool] = ()
    """Those that were offered."""
    prompt: Sequence[int] = ()
    """The ids before the first."""


AS_USUAL = ReaderOptions()


class Span(NamedTuple):
    """Where a closed message's own ids stand in `Reader.kept`.

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
    """Of a call that a tool answered in the same generation: behind the answer, which follows."""

    @property
    def answer_tokens(self) -> int:
        return max(0, self.answer_end - self.end)

    @property
    def content_tokens(self) -> int:
        return self.end - self.body_start - (self.terminator is not None)

    @property
    def earlier(self) -> bool:
        """An earlier generation wrote the call, of which only the answer stands here."""
        return self.start == self.end


class Reader(Protocol):
    """One generation. `feed` never raises, whatever the ids."""

    kept: list[int]
    """The ids that count, in order."""
    dropped: list[tuple[int, int]]
    """Ids that do not count, each behind so many that do."""
    messages: list[Span]
    """One for each message that was opened and closed."""
    ended: bool
    """It wants no more ids: a turn has ended."""
    clear: bool
    """In a message's text, with no bytes pending: an id of `plain` is its text as it stands."""
    call_ends: bool
    """The first call is the end of a turn."""

    @property
    def plain(self) -> Mapping[int, bytes]:
        """Ids that are text by themselves, for whoever looks them up without asking: what is found
        belongs into `kept`."""
        ...

    @property
    def recipient(self) -> str | None:
        """To whom the message is that is open now."""
        ...

    def feed(self, token_ids: Sequence[int]) -> list[Fragment]:
        """The next ids, in chunks of any size. After the end they are discarded."""
        ...

    def text(self, token_ids: Sequence[int], said: list[bytes]) -> bool:
        """Ids that are nothing but text of the open message, to whoever says it. False when they
        are more than that, and then they have not been read: `feed` them."""
        ...

    def take_back(self) -> None:
        """Forget a header that has been begun, and was only tried."""
        ...

    def answer(self, token_ids: Sequence[int]) -> None:
        """A tool has answered the call that ended the turn: its message counts too, and another
        turn begins behind it."""
        ...

    def finish(self, *, stopped: bool) -> list[Fragment]:
        """The engine has ended: `stopped` of itself, or cut."""
        ...


class ScoredReader(Reader, Protocol):
    """A reader that says how likely each token was."""

    def take_logprobs(self, logprobs: Sequence[Logprob]) -> None:
        """What the engine says of the ids that are fed next."""
        ...


class ReaderBase:
    """What every dialect's reader notes: which ids count, which messages have ended, and the
    fragments that have not been given out yet."""

    def __init__(self, options: ReaderOptions) -> None:
        self.call_ends = options.call_ends
        self.ended = False
        self.clear = False
        """In a message's text, with nothing held back: an id of `plain` is its text as it
        stands."""
        self.kept: list[int] = []
        self.dropped: list[tuple[int, int]] = []
        """Ids that do not count, each behind so many that do."""
        self.messages: list[Span] = []
        self._ending = options.ending
        self._start = 0
        """Where in `kept` the next message begins, or the one that is open."""
        self._repaired = False
        """Of the message that is open or comes next."""
        self._pieces: list[bytes] = []
        """Text that is not among the fragments yet."""
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
        """The fragments since the last time."""
        self._add_text()
        out, self._out = self._out, []
        return out
