"""The seam of readers: model output ids in, fragments and message spans out.

Works on ids and fragments: no dialect, no item and no HTTP.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from trt_responses.language.fragments import Fragment, Repaired, RepairKind, Text
from trt_responses.language.messages import FunctionTool


class ReaderOptions(NamedTuple):
    """Options for reading one generation."""

    call_ends: bool = True
    """Whether the first call ends the turn."""
    ending: Collection[str] = ()
    """Recipients to which any call ends the turn."""
    tools: Sequence[FunctionTool] = ()
    """The tools that the request offered."""
    prompt: Sequence[int] = ()
    """The ids of the prompt."""


AS_USUAL = ReaderOptions()


class Span(NamedTuple):
    """The place of a closed message's ids in `Reader.kept`.

    They start with the mark that opens it, or after that mark if the prompt wrote it.
    """

    start: int
    body_start: int  # after the header
    end: int  # after the terminator
    channel: str | None
    recipient: str | None
    content_type: str | None
    repaired: bool  # the ids differ from what the dialect renders for its text: render it again
    terminator: int | None
    answer_end: int = 0
    """The end of the tool result that follows this call in the same generation."""
    stored_answer: Sequence[int] = ()
    """That tool result in the form that the call's block stores; empty if that is its ids."""

    @property
    def answer_tokens(self) -> int:
        return max(0, self.answer_end - self.end)

    @property
    def content_tokens(self) -> int:
        return self.end - self.body_start - (self.terminator is not None)

    @property
    def earlier(self) -> bool:
        """Whether an earlier generation wrote the call, and this one holds its result only."""
        return self.start == self.end


class Reader(Protocol):
    """The reader of one generation. `feed` never raises for any ids."""

    kept: list[int]
    """The ids that count, in order."""
    dropped: list[tuple[int, int]]
    """The ids that do not count, each with the number of counted ids before it."""
    messages: list[Span]
    """The span of each closed message."""
    ended: bool
    """Whether the turn has ended; further ids are discarded."""
    clear: bool
    """Whether the reader is inside a message's text with no bytes pending: then an id of `plain` is
    exactly its text."""
    call_ends: bool
    """Whether the first call ends the turn."""

    @property
    def plain(self) -> Mapping[int, bytes]:
        """The text of each id that is text alone. Callers may use it instead of `feed`; they must
        then append the id to `kept`."""
        ...

    @property
    def recipient(self) -> str | None:
        """The recipient of the open message."""
        ...

    @property
    def in_text(self) -> bool:
        """Whether the next id may be text that has its tokens' log probabilities."""
        ...

    def bytes_of(self, token_id: int) -> bytes | None:
        """The bytes of an id."""
        ...

    def feed(self, token_ids: Sequence[int]) -> list[Fragment]:
        """The fragments of the next ids, in chunks of any size. Ids after the end are discarded."""
        ...

    def text(self, token_ids: Sequence[int], out: list[bytes]) -> bool:
        """Read ids that are only text of the open message, and append the text to `out`. Returns
        False, and reads nothing, if they are more than text: pass them to `feed`."""
        ...

    def take_back(self) -> None:
        """Drop a header that was begun on trial."""
        ...

    def answer(self, token_ids: Sequence[int], stored: Sequence[int] = ()) -> None:
        """Append the tool result for the call that ended the turn: its ids count, and another turn
        begins after them. `stored` is the form that the call's block stores."""
        ...

    def finish(self, *, stopped: bool) -> list[Fragment]:
        """The fragments of the end. `stopped`: the engine stopped by itself; else it was cut."""
        ...


class ReaderBase:
    """State shared by all dialects' readers: counted ids, closed messages and pending fragments."""

    def __init__(self, options: ReaderOptions) -> None:
        self.call_ends = options.call_ends
        self.ended = False
        self.clear = False
        """Whether the reader is inside a message's text with nothing held back: then an id of
        `plain` is exactly its text."""
        self.kept: list[int] = []
        self.dropped: list[tuple[int, int]] = []
        """The ids that do not count, each with the number of counted ids before it."""
        self.messages: list[Span] = []
        self._ending = options.ending
        self._start = 0
        """The index in `kept` at which the open or next message begins."""
        self._repaired = False
        """Whether the open or next message was repaired."""
        self._pieces: list[bytes] = []
        """Pieces of text not yet in a fragment."""
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

    def _flush(self) -> list[Fragment]:
        """The fragments since the last call."""
        if self._pieces:
            self._add_text()
        out, self._out = self._out, []
        return out
