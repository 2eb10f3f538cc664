"""Reads what a model wrote: token ids in, fragments out. Knows no HTTP, no item, no tool.

A generation's prompt ended with `<|start|>assistant`, so it begins inside a header. `feed` never
raises, whatever the ids, and the fragments are always whole: `Opened`, `Text`…, `Closed`.

What the text of a generation is, of which nothing is lost and to which nothing is added:

- the ids between a header's `<|message|>` and the terminator, control ids that end nothing spelled
  out, bad UTF-8 replaced as openai-harmony does it;
- ordinary ids where a header must begin (`stray_text`): held back until their end is read. They are
  the answer where `<|return|>` or the engine's own stop ends them, and else a thought: before
  `<|end|>`, `<|call|>` or another header, where they are cut, and beyond `MAX_HELD` ids;
- words of a broken header that have no place in one (`headers.py`), at the front of its message.

What is structure, and not text: the words that have a place in a header, white space beside them,
white space alone where a header must begin, a header cut short by the output's end (`cut_header`,
its other words too, unless the engine stopped of itself), and control ids between messages. A
header in another author's name ends the generation (`foreign_author`): neither it nor anything
after it is kept or told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from trt_responses.harmony.read.headers import MAX_LENGTH, Author, Headers, fault_of, is_message
from trt_responses.language.fragments import Closed, Opened, Repaired, Text
from trt_responses.language.reader import AS_USUAL, ReaderBase, Span
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID
from trt_responses.tokens.pieces import Pieces, advance, escaped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.harmony.read.headers import Ending
    from trt_responses.language.fragments import Fragment
    from trt_responses.language.reader import ReaderOptions
    from trt_responses.tokens.vocabulary import Vocabulary

ENDS_GENERATION = frozenset({CONTROL.return_, CONTROL.call})
TERMINATORS = ENDS_GENERATION | {CONTROL.end}

MAX_HELD = 16_384
"""The most ids of a text without a header that are held back: room for one entry of `kept` each."""

_State = Literal["header", "content", "held", "between", "done"]
_Sign = Literal["message", "channel", "start", "terminator", "word"]
_Move = (
    Literal["open", "restart", "branch", "abandon", "lengthen", "add", "hold", "close"]
    | Literal["begin", "stray", "open_headless", "begin_headless", "restart_held", "branch_held"]
)

SIGNS: Mapping[int, _Sign] = {
    CONTROL.message: "message",
    CONTROL.channel: "channel",
    CONTROL.start: "start",
    **dict.fromkeys(TERMINATORS, "terminator"),
}
"""The kinds of ids. Every id that is not among them is a word, spelled-out control ids too."""

MOVES: Mapping[_State, Mapping[_Sign, _Move]] = {
    "header": {
        "message": "open",  # content; held, where it names nothing and has text
        "channel": "branch",  # header: where text stands before it, that is abandoned
        "start": "restart",  # header: the one before is abandoned
        "terminator": "abandon",  # between, or done
        "word": "lengthen",  # header; content or held, when it is too long for one
    },
    "content": {
        "message": "add",  # content: it ends nothing, and is spelled out
        "channel": "add",
        "start": "add",
        "terminator": "close",  # between, or done
        "word": "add",
    },
    "held": {
        "message": "hold",  # held: spelled out
        "channel": "branch_held",  # header: the text before is a thought
        "start": "restart_held",  # header: likewise
        "terminator": "close",  # between, or done
        "word": "hold",  # held; content, when it is too long
    },
    "between": {
        "message": "open_headless",  # content
        "channel": "begin_headless",  # header
        "start": "begin",  # header
        "terminator": "stray",  # between, or done
        "word": "begin_headless",  # header, or text that has none
    },
}
"""What each kind of id does in each state, and the state that follows. In `done` all is
discarded."""


class Tables(NamedTuple):
    """The tables that all readers of a vocabulary share, built once."""

    pieces: Pieces
    headers: Headers

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Tables:
        pieces = Pieces(vocabulary)
        return cls(pieces, Headers(pieces, vocabulary.encoding))


class Reader(ReaderBase):
    """The reader of one generation. `kept` are the ids that count, in order; `ended` says that it
    wants no more."""

    def __init__(self, tables: Tables, options: ReaderOptions = AS_USUAL) -> None:
        """A call that ends a turn ends at `<|call|>`; one to a recipient of `options.ending` ends
        it however it ends."""
        super().__init__(options)
        self._ends = ENDS_GENERATION if options.call_ends else frozenset({CONTROL.return_})
        self._plain = tables.pieces.plain
        self._raw = tables.pieces.raw
        self._headers = tables.headers
        self._pending = b""
        self._state: _State = "header"
        self._author: Author = "given"
        self._words = self._body = 0
        self._opened = Opened(None, None, None)
        self._held: list[bytes] = []
        """Pieces of a text whose channel is not known yet."""

    @property
    def plain(self) -> Mapping[int, bytes]:
        """The text of each id that is text by itself, for callers that look it up without `feed`:
        they must add the id to `kept`."""
        return self._plain

    def feed(self, token_ids: Sequence[int]) -> list[Fragment]:
        """Read the next ids, in chunks of any size. After the end they are discarded."""
        if self._state == "content":
            pieces = list[bytes]()
            if self.text(token_ids, pieces):
                return [Text(pieces)] if pieces else []
        told, at, count = list(map(self._plain.get, token_ids)), 0, len(token_ids)
        told.append(None)
        while at < count:
            if self.clear and (end := told.index(None, at)) > at:
                self.kept += token_ids[at:end]
                self._pieces += told[at:end]  # type: ignore[arg-type]  # none of these is None
                at = end
                continue
            if self._state != "done":
                self._step(token_ids[at])
            else:
                self._drop(token_ids[at])
            at += 1
        return self._taken()

    def text(self, token_ids: Sequence[int], said: list[bytes]) -> bool:
        """The hot path: ids that are nothing but text of the open message, to whoever says it.

        False when they are more than that, and then they have not been read: `feed` them.
        """
        if len(token_ids) == 1:
            token_id = token_ids[0]
            if not self.clear or (piece := self._plain.get(token_id)) is None:
                return self._part(token_id, said)
            self.kept.append(token_id)
            said.append(piece)
            return True
        if self._state != "content" or not token_ids:
            return False
        pieces = list(map(self._plain.get, token_ids))
        if self.clear and all(pieces):
            self.kept += token_ids
            said += pieces  # type: ignore[arg-type]  # `all` has seen that none is None
            return True
        if min(token_ids) < 0 or max(token_ids) >= FIRST_CONTROL_ID:
            return False
        for token_id in token_ids:
            self.text((token_id,), said)
        return True

    def _part(self, token_id: int, said: list[bytes]) -> bool:
        """Read one id that may be a part of a character, as `text` does. By `feed` it takes 1.5 µs
        more."""
        if self._state != "content" or token_id >= FIRST_CONTROL_ID:
            return False
        if (raw := self._raw(token_id)) is None:
            return False
        self.kept.append(token_id)
        piece, self._pending = advance(self._pending + raw)
        self.clear = not self._pending
        if piece:
            said.append(piece)
        return True

    @property
    def recipient(self) -> str | None:
        """The recipient of the message that is open now."""
        return self._opened.recipient if self._state == "content" else None

    def take_back(self) -> None:
        """Forget a header that was begun as a trial."""
        if self._state == "header":
            del self.kept[self._start :]
            self._state = "between"

    def answer(self, token_ids: Sequence[int], held: Sequence[int] = ()) -> None:
        """Take a tool's answer to the call that ended the turn: its ids count too, and another turn
        begins behind them."""
        self.kept += token_ids
        self.messages[-1] = self.messages[-1]._replace(answer_end=len(self.kept), held=held)
        self._state, self.ended = "between", False

    def finish(self, *, stopped: bool) -> list[Fragment]:
        """Note that the engine has ended: `stopped` by itself, or cut (length, abort, error)."""
        if self._state in ("content", "held"):
            if self._state == "held" and stopped:
                self._release("final")
            if stopped:
                self._repair("missing_terminator")
            self._close(None, whole=stopped)
        elif self._state == "header" and (stopped or self._start < len(self.kept)):
            self._abandon(len(self.kept), "stopped" if stopped else "cut")
        self._state = "done"
        return self._taken()

    def _step(self, token_id: int) -> None:
        raw = self._raw(token_id)
        if raw is None:
            self._repair("undecodable")
            self._drop(token_id)
            return
        self.kept.append(token_id)
        match MOVES[self._state][SIGNS.get(token_id, "word")]:
            case "add":
                # Read back as ids, a control id would be structure and no longer text.
                self._repaired |= token_id >= FIRST_CONTROL_ID
                self._say(raw)
            case "close":
                self._close(token_id, whole=True)
            case "hold":
                self._say(raw)
                if len(self.kept) - self._body > MAX_HELD:
                    self._release("analysis")
            case "branch_held":
                self._close(None, whole=True, end=len(self.kept) - 1)
                self._expect_header("missing")
            case "restart_held":
                self._close(None, whole=True, end=len(self.kept) - 1)
                self._expect_header("written")
            case "branch" if self._begins_with_text():
                self._abandon(len(self.kept) - 1, "start")
                self._expect_header("missing")
            case "lengthen" | "branch":
                if len(self.kept) - 1 - self._words >= MAX_LENGTH:
                    self._abandon(len(self.kept), "too_long")
            case "open":
                self._open_by_header()
            case "restart":
                self._abandon(len(self.kept) - 1, "start")
                if not self.ended:
                    self._expect_header("written")
            case "abandon":
                self._abandon(len(self.kept) - 1, "terminator")
            case "begin":
                self._expect_header("written")
            case "begin_headless":
                self._expect_header("missing")
            case "open_headless":
                self._expect_header("missing")
                self._open_by_header()
            case "stray":
                self._repair("stray_control")
                self._after(token_id)

    def _expect_header(self, author: Author) -> None:
        self._state, self._author, self._repaired = "header", author, False
        self._start = len(self.kept) - 1
        self._words = self._start + (author == "written")

    def _open_by_header(self) -> None:
        header = self._headers.read(self.kept[self._words : -1], self._author, closed=True)
        if header.foreign:
            self._foreign()
            return
        if header.mended:
            self._repair("malformed_header")
        self._open(header.opened, len(self.kept), held=bool(header.text.strip()))
        self._say(header.text)

    def _begins_with_text(self) -> bool:
        """Whether text stands in the header before the id that was read last."""
        words = self.kept[self._words : -1]
        if len(words) <= (self._author == "written"):  # the author's name, in most headers
            return False
        header = self._headers.read(words, self._author, closed=True)
        return bool(header.text.strip()) and not header.foreign

    def _abandon(self, end: int, how: Ending) -> None:
        """Note that a header ended without `<|message|>`, as a fault of its kind, and keep its
        text."""
        words = self.kept[self._words : end]
        header = self._headers.read(words, self._author, closed=False)
        if header.foreign:
            self._foreign()
            return
        structured = self._author == "written" or CONTROL.channel in words or any(header.opened)
        self._repair(fault_of(words, how, structured))
        terminator = self.kept[-1] if how == "terminator" else None
        if is_message(header, how, structured):
            self._open(header.opened, self._words, held=True)
            self._say(header.text)
            if how == "too_long":
                return
            if how == "stopped":
                if self._state == "held":
                    self._release("final")
                self._repair("missing_terminator")
            self._close(terminator, whole=how != "cut", end=end + (terminator is not None))
        elif terminator is not None:
            self._after(terminator)

    def _open(self, opened: Opened, body_start: int, *, held: bool = False) -> None:
        """Open a message. One that is to be `held` is, unless its header says what it is."""
        self._opened, self._body = opened, body_start
        if held and not opened.channel and not opened.recipient:
            self._state, self.clear = "held", False
            return
        self._add(opened)
        self._state, self.clear = "content", True

    def _release(self, channel: str) -> None:
        """Open the message whose text was held back, on its channel."""
        self._open(self._opened._replace(channel=channel), self._body)
        self._pieces, self._held = self._held, []
        self.clear = not self._pending

    def _say(self, raw: bytes) -> None:
        piece, self._pending = advance(self._pending + raw)
        content = self._state == "content"
        if piece:
            (self._pieces if content else self._held).append(piece)
        self.clear = content and not self._pending

    def _close(self, terminator: int | None, *, whole: bool, end: int | None = None) -> None:
        if self._state == "held":
            self._release("final" if terminator == CONTROL.return_ else "analysis")
        if self._pending:
            self._pieces.append(escaped(self._pending.decode("utf-8", "replace")))
            self._pending = b""
        self._add(Closed(whole))
        end = len(self.kept) if end is None else end
        self.messages.append(
            Span(self._start, self._body, end, *self._opened, self._repaired, terminator)
        )
        self._after(terminator, ends=self._opened.recipient in self._ending)

    def _after(self, terminator: int | None, *, ends: bool = False) -> None:
        self.clear = False
        self.ended = ends or terminator in self._ends
        self._state = "done" if self.ended else "between"

    def _foreign(self) -> None:
        foreign = self.kept[self._start :]
        del self.kept[self._start :]
        self._drop(*foreign)
        self._add(Repaired("foreign_author"))
        self.ended, self._state = True, "done"
