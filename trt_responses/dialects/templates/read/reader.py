"""Reads the output of template models: token ids in, fragments out. One automaton for all families.

    text ──thought mark──> thought ──its end──> text
      └────call mark─────> call ────its end───> between ──text──> text

A thought is a message on `analysis`, text one on `final`, a call one on `commentary` to its
function. A mark that is one token is recognised by its id, and its spelling in ordinary tokens is
text. For a mark that is text, the reader holds text back while it may become the mark. White space
beside a mark belongs to it. Every other byte is returned or counted in a repair. Nothing raises.
Works with families and bodies: no template, no item and no HTTP.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Literal

from trt_responses.dialects.templates.read.bodies import BODIES
from trt_responses.dialects.templates.read.body import Body, split
from trt_responses.dialects.templates.read.messages import Messages
from trt_responses.dialects.templates.tables import WHITE, Sign, Tables
from trt_responses.language.fragments import Fragment, Opened
from trt_responses.language.reader import AS_USUAL, ReaderOptions
from trt_responses.tokens.pieces import escaped

FUNCTIONS = "functions."
JSON = "<|constrain|>json"

THOUGHT = Opened("analysis", None, None)
TEXT = Opened("final", None, None)

BETWEEN_CALLS = f"{WHITE},[]"
"""What stands between calls in a list."""

Begins = Literal["thought", "text"]
_State = Literal["text", "thought", "call", "between", "done"]


class TemplateReader(Messages):
    """The reader of one generation. `kept` holds the ids that count, in order; `ended` is True when
    further ids are discarded."""

    def __init__(
        self, tables: Tables, options: ReaderOptions = AS_USUAL, *, begins: Begins = "text"
    ) -> None:
        """`begins`: the state at the prompt's end."""
        super().__init__(options)
        self._tables = tables
        self._family = tables.family
        calls = tables.family.calls
        self._bare = calls is not None and calls.bare and bool(options.tools)
        self._loose = calls is not None and not calls.open and not calls.bare
        """Whether a call in its section begins without a mark."""
        self._in_section = False
        self._schemas = {tool.name: tool.parameters or {} for tool in options.tools}
        self._state: _State = begins
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        """Text that may be part of a mark, or white space beside one."""
        self._body: Body | None = None
        self._raw: list[str] = []
        """A call as written, until its name is known."""

    @property
    def thinking(self) -> bool:
        """Whether a thought is open; the prompt may have opened it."""
        return self._state == "thought"

    @property
    def in_text(self) -> bool:
        """Whether the next id may be a thought's or an answer's; a call's text is not the model's
        own spelling."""
        return self.recipient is None

    def bytes_of(self, token_id: int) -> bytes | None:
        table = self._tables.token_bytes
        return table[token_id] if 0 <= token_id < len(table) else None

    @property
    def plain(self) -> Mapping[int, bytes]:
        return self._tables.plain

    def take_back(self) -> None:
        """Nothing to drop: template models have no headers."""

    def answer(self, token_ids: Sequence[int], stored: Sequence[int] = ()) -> None:
        """Append the tool result for the call that ended the turn: its ids count, and another turn
        begins after them."""
        self.kept += token_ids
        answered = self.messages[-1]._replace(answer_end=len(self.kept), stored_answer=stored)
        self.messages[-1] = answered
        self._start = len(self.kept)
        self._state, self.ended = self._tables.begins(token_ids), False
        self._in_section = False

    def feed(self, token_ids: Sequence[int]) -> list[Fragment]:
        """The fragments of the next ids, in chunks of any size. Ids after the end are discarded."""
        plain = self._tables.plain
        for token_id in token_ids:
            if self.clear and (piece := plain.get(token_id)) is not None:
                self.kept.append(token_id)
                self._pieces.append(piece)
            else:
                self._step(token_id)
        return self._flush()

    def text(self, token_ids: Sequence[int], out: list[bytes]) -> bool:
        """The hot path: append ids that are plain text of the open message to `out`.

        Returns False, and reads nothing, if they are more than text: pass them to `feed`.
        """
        if not self.clear or not token_ids:
            return False
        pieces = [*map(self._tables.plain.get, token_ids)]
        if None in pieces:
            return False
        self.kept += token_ids
        out += pieces  # type: ignore[arg-type]  # checked above
        return True

    def finish(self, *, stopped: bool) -> list[Fragment]:
        """The fragments of the end. `stopped`: the engine stopped by itself; else it was cut
        (length, abort, error)."""
        if self._state != "done":
            self._end(None, whole=stopped)
        return self._flush()

    # --- one id ---------------------------------------------------------------------------------

    def _step(self, token_id: int) -> None:
        if self._state == "done":
            self._drop(token_id)
            return
        raw = self._tables.token_bytes[token_id : token_id + 1] if token_id >= 0 else ()
        if not raw or not raw[0]:
            self._repair("undecodable")
            self._drop(token_id)
            return
        self.kept.append(token_id)
        sign = self._tables.signs.get(token_id)
        if sign is None:
            if token_id in self._tables.controls:
                self._repaired = True  # rendered again, its spelling would be another id
            self._take(self._decoder.decode(raw[0]))
            if self._decoder.getstate()[0]:
                self.clear = False  # the next id may end this character
            return
        self._take(self._decoder.decode(b"", final=True))
        self._sign(token_id, sign, raw[0].decode())

    def _sign(self, token_id: int, sign: Sign, spelling: str) -> None:
        if sign == "end":
            self._end(token_id, whole=True)
        elif sign == "foreign":
            self._forget(token_id)
            self._repair("foreign_author")
            self._end(None, whole=True, explained=True)
            self.ended = True
        elif self._body is not None:
            self._sign_in_call(self._body, token_id, sign, spelling)
        elif sign == "call":
            self._begin_call(spelling, marked=True)
        elif sign == "thought" and self._state != "thought":
            self._close(None, whole=True, before_mark=True)
            self._state = "thought"
        elif sign == "thought_end" and self._state == "thought":
            self._close(token_id, whole=True)
            self._state = "text"
        elif sign in ("section", "section_end") and self._state != "thought":
            self._close(None, whole=True, before_mark=True)
            self._state, self._in_section = "between", sign == "section"
        elif sign == "inner":
            self._take(spelling)
        elif sign == "frame":
            self._close(None, whole=True, before_mark=True)
        else:
            self._repair("stray_control")

    def _sign_in_call(self, body: Body, token_id: int, sign: Sign, spelling: str) -> None:
        if sign == "call_end" and body.closes():
            self._end_call(body, token_id)
        elif sign == "call" and body.whole:
            self._begin_next_call(body, token_id, spelling)
        elif sign == "section_end" and body.closes():
            self._end_call(body, None, before_mark=True)
            self._in_section = False
        elif sign == "inner" and body.mark(spelling):
            if self._raw:
                self._raw.append(spelling)
            if body.over:
                self._end_call(body, token_id)
        else:
            self._repaired = True
            self._take(spelling)

    # --- text -----------------------------------------------------------------------------------

    def _take(self, text: str) -> None:
        while text and self._state != "done":
            if self._body is not None:
                text = self._take_in_call(self._body, text)
            elif self._state == "thought":
                text = self._take_words(text, self._tables.in_thought)
            elif self._opened is None and (self._bare or (self._loose and self._in_section)):
                text = self._take_start(text)
            else:
                text = self._take_words(text, self._tables.in_text)

    def _take_start(self, text: str) -> str:
        """Read text where a call may begin without a mark."""
        text, self._held = (self._held + text).lstrip(WHITE if self._bare else BETWEEN_CALLS), ""
        if text and self._begins_call(text):
            self._begin_call("", marked=False)
            return text
        return text and self._take_words(text, self._tables.in_text)

    def _begins_call(self, text: str) -> bool:
        calls = self._family.calls
        assert calls is not None
        return text[0] == "{" if calls.body == "json" else text[0].isidentifier()

    def _take_words(self, text: str, marks: Sequence[str]) -> str:
        """Read text of a message up to the next mark. Returns the text after the mark."""
        if not marks and not text.strip(WHITE):  # models write thousands of empty lines
            self._held, self.clear = self._held + text, False
            return ""
        words, mark, behind = split(self._held + text, marks)
        self._held = ""
        if mark is None:
            bare = words.rstrip(WHITE)
            self._say(bare)
            self._held = words[len(bare) :] + behind
            self.clear = self._opened is not None and not self._held
            return ""
        self._say(words.rstrip(WHITE))
        self._text_mark(mark)
        return behind

    def _text_mark(self, mark: str) -> None:
        sign = self._tables.meaning[mark]
        if sign == "call":
            self._begin_call(mark, marked=False)
            return
        self._close(None, whole=True)
        if sign in ("section", "section_end"):
            self._state, self._in_section = "between", sign == "section"
        elif sign != "frame":
            self._state = "text" if self._state == "thought" else "thought"

    def _say(self, text: str) -> None:
        """Return text as a fragment; white space at a message's start belongs to the mark
        before."""
        if self._opened is None:
            text = text.lstrip(WHITE)
            if not text:
                return
            if self._state == "between":
                self._repair("stray_text")
            self._state = "thought" if self._state == "thought" else "text"
            self._open(THOUGHT if self._state == "thought" else TEXT)
        if text:
            self._pieces.append(escaped(text))

    # --- calls ----------------------------------------------------------------------------------

    def _begin_call(self, spelling: str, *, marked: bool) -> None:
        self._close(None, whole=True, before_mark=marked)
        calls = self._family.calls
        assert calls is not None
        self._state = "call"
        self._raw = [spelling]
        self._body = BODIES[calls.body](calls, self._schemas, self, self._tables.inner)

    def _begin_next_call(self, body: Body, token_id: int, spelling: str) -> None:
        """Close a call with complete arguments that the model did not close, and begin the next."""
        self._repair("missing_terminator")
        self._end_call(body, None, before_mark=True)
        if self.ended:
            self._forget(token_id)
        else:
            self._begin_call(spelling, marked=True)

    def _take_in_call(self, body: Body, text: str) -> str:
        if self._raw:
            self._raw.append(text)
        body.feed(text)
        if not body.over:
            return ""
        rest = body.rest
        if self._raw and rest:
            self._raw[-1] = self._raw[-1].removesuffix(rest)
        self._end_call(body, None)
        return rest

    def _end_call(self, body: Body, token_id: int | None, *, before_mark: bool = False) -> None:
        """End a call at its closing mark, or where it closes itself."""
        if not body.over:
            body.finish(closed=True)
        self._body = None
        if self._raw and self._bare:
            self._answer_after_all()
            return
        if self._raw:
            self._unread(closed=True)
        recipient = self.recipient
        self._close(token_id, whole=True, before_mark=before_mark)
        if recipient is None:
            self._state = "between"
        else:
            self.ended = self.call_ends or recipient in self._ending
            self._state = "done" if self.ended else "between"

    def _answer_after_all(self) -> None:
        """Return an object that is no call as the beginning of an answer."""
        raw, self._raw = "".join(self._raw), []
        self._state = "text"
        self._say(raw)

    def _unread(self, *, closed: bool) -> None:
        """Return a call without a name as text, unless the output ended inside it."""
        raw, self._raw = "".join(self._raw), []
        self._repair("malformed_header" if closed else "cut_header")
        if closed:
            self._open(TEXT)
            self._pieces.append(escaped(raw))

    def opened(self, name: str) -> None:
        """Open the call's message: the body read the name."""
        self._raw = []
        self._open(Opened("commentary", FUNCTIONS + name, JSON))

    def arguments(self, text: str) -> None:
        """Add a piece of the arguments."""
        if text:
            self._pieces.append(escaped(text))

    def fault(self) -> None:
        """Report an unreadable part of a call as a repair."""
        self._repair("malformed_header")

    # --- messages -------------------------------------------------------------------------------

    def _close(self, token_id: int | None, *, whole: bool, before_mark: bool = False) -> None:
        """End the open message, if any. `before_mark`: the newest id does not belong to it."""
        held, self._held = self._held.rstrip(WHITE), ""
        if held:
            self._say(held)
        self.clear = False
        self._end_message(token_id, whole=whole, before_mark=before_mark)

    def _end(self, token_id: int | None, *, whole: bool, explained: bool = False) -> None:
        """End the turn, at an id, or because the engine stopped or was cut. `explained`: a repair
        already reports the missing terminator."""
        if token_id is None:
            self._take(self._decoder.decode(b"", final=True))
        if self._body is not None:
            self._end_of_cut_call(self._body, token_id, whole=whole)
        else:
            held, self._held = self._held, ""
            self._say(held if self._opened is not None else held.rstrip(WHITE))
            unended = token_id is None or self._state == "thought"
            if self._opened is not None and unended and whole and not explained:
                self._repair("missing_terminator")
            self._close(token_id, whole=whole)
        if self.messages and token_id is not None:
            self.messages[-1] = self.messages[-1]._replace(end=len(self.kept))
            self._start = len(self.kept)
        self.clear, self.ended = False, self.ended or token_id is not None
        self._state = "done"

    def _end_of_cut_call(self, body: Body, token_id: int | None, *, whole: bool) -> None:
        """End a call that has no closing mark, with the text written so far."""
        body.finish(closed=False)
        self._body = None
        if self._raw and self._bare:
            self._answer_after_all()
        elif self._raw:
            self._unread(closed=whole)
        elif whole:
            self._repair("missing_terminator")
        self._close(token_id, whole=whole)
