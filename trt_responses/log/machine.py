"""Turns fragments into events: which item a message of the model becomes, and which events say so.

Two rules for the file: every legal move is in the table `OPENS` or in one shape of
`item_events.py`, and no text is kept here but that of a call which is sent when it is whole; any
other text as a whole is read back from the log's fold. It knows no token and no HTTP.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

import orjson

from trt_responses.language.fragments import (
    Closed,
    Fragment,
    Opened,
    Repaired,
    RepairKind,
    Scored,
    Text,
)
from trt_responses.log.entries import Deltas, ScoredDeltas
from trt_responses.log.item_events import (
    CALLS,
    Call,
    FolderCall,
    Message,
    NewStep,
    Reasoning,
    Seal,
    Shape,
    TextFilter,
)
from trt_responses.log.item_events import Callee as Callee
from trt_responses.log.item_events import Mint as Mint
from trt_responses.log.log import Log
from trt_responses.wire.events import OutputItemAdded, OutputItemDone
from trt_responses.wire.output import (
    OutputItem,
    Phase,
    TokenLogprob,
    written,
)

NewCall = Callable[[Mint, int], FolderCall]
"""Makes a call, with the index of its item."""


def json_text(raw: bytes) -> bytes:
    """A text in the form in which JSON has it within quotes."""
    return orjson.dumps(raw.decode("utf-8", "replace"))[1:-1]


Opens = Literal["reasoning", "commentary", "final_answer"]

OPENS: Mapping[str | None, Opens] = {
    "analysis": "reasoning",
    "commentary": "commentary",  # a preamble: text before or between calls, for the user to read
    "final": "final_answer",
    None: "final_answer",
}
"""The item that a message to the user becomes, by its channel. A message to an offered tool is a
call."""


PEOPLE = frozenset({"user", "assistant", "all"})
"""Recipients of messages that are no calls."""


class MachineOptions(TypedDict, total=False):
    """What features change in how a response is written."""

    seal: Seal | None
    answer_text: Callable[[Phase], TextFilter | None] | None
    """Makes filters of messages to the user."""
    scored: bool
    runners: Mapping[str, NewCall]
    """The tools that are run here, by the recipients of their calls."""
    new_thought: type[Reasoning]
    """What a thought is sent as."""


class Machine:
    """Makes the events of one response. One item is open at a time, or none."""

    def __init__(
        self,
        log: Log,
        callees: Mapping[str, Callee],
        mint: Mint,
        **options: Unpack[MachineOptions],
    ) -> None:
        self._new_thought = options.get("new_thought", Reasoning)
        self._log = log
        self._runners = options.get("runners") or {}
        self._scored = options.get("scored", False)
        self._seal = options.get("seal")
        self.callees = callees
        self.mint = mint
        self._open: Shape | None = None
        self._deltas: Deltas | None = None
        self._new_answer_text = options.get("answer_text")
        self._filter: TextFilter | None = None
        self._untold: tuple[TokenLogprob, ...] = ()
        """Likelihoods of tokens whose text is held back."""
        self._unanswered: FolderCall | None = None
        self._held: list[bytes] | None = None
        """The text of a call that is sent as a whole."""
        self.pieces: list[bytes] | None = None
        """The last entry of the log, to which text of the open message is added as it is read. None
        when nothing is open, or the model's text is not yet the client's."""
        self.repairs: defaultdict[RepairKind, int] = defaultdict(int)
        self.stopped: str | None = None
        """The client's own text at which the answer stopped."""

    def take(self, fragment: Fragment) -> None:
        if type(fragment) is Text:
            self._say(fragment.pieces)
        elif type(fragment) is Opened:
            self._begin(self._shape(fragment))
        elif type(fragment) is Closed:
            self._end("completed" if fragment.whole else "incomplete")
        elif type(fragment) is Repaired:
            self.repairs[fragment.kind] += 1
        elif type(fragment) is Scored:
            self._say_scored(fragment)

    def _say(self, pieces: Sequence[bytes]) -> None:
        if self.pieces is not None:
            self.pieces += pieces
        elif self._filter is not None:
            self._say_filtered(self._filter.feed(pieces))
            self.stopped = self._filter.found
        elif self._held is not None:
            self._held += pieces

    def _say_filtered(self, parts: Sequence[bytes | NewStep]) -> None:
        """Tell texts and events. An event comes behind its text, and more text behind it is another
        run of deltas."""
        shape, deltas = self._open, self._deltas
        assert shape is not None
        assert deltas is not None, "an open message has deltas"
        for part in parts:
            if isinstance(part, bytes):
                deltas.pieces.append(part)
                if isinstance(deltas, ScoredDeltas):
                    deltas.logprobs.append(self._untold)
                    self._untold = ()
                continue
            self._log.append(part(shape.id, shape.index))
            deltas = self._deltas = self._grow(shape)

    def _say_scored(self, scored: Scored) -> None:
        if isinstance(self._deltas, ScoredDeltas):
            if self._filter is None:
                self._deltas.logprobs += scored.logprobs
            else:
                self._untold += tuple(entry for entries in scored.logprobs for entry in entries)
        self._say(scored.pieces)

    def _shape(self, opened: Opened) -> Shape:
        index = len(self._log.output)
        new_call = self._runners.get(opened.recipient) if opened.recipient else None
        if new_call is not None:
            return new_call(self.mint, index)
        callee = self.callees.get(opened.recipient) if opened.recipient else None
        if callee is not None and (of_kind := CALLS.get(callee.kind)) is not None:
            return of_kind(self.mint, index, callee)
        if callee is not None:
            return Call(self.mint("fc"), index, callee, self.mint("call"))
        opens = OPENS.get(opened.channel, "final_answer")
        if opened.recipient:
            self.repairs["unknown_recipient"] += 1
            if self.is_unknown(opened.recipient, opened.channel):
                opens = "reasoning"  # arguments are nothing for the user
        if opens == "reasoning":
            message = len(written(self._log.output))
            return self._new_thought(self.mint("rs"), index, self._seal, message)
        return Message(self.mint("msg"), index, opens)

    def is_unknown(self, recipient: str, channel: str | None) -> bool:
        """Whether a message to this recipient is a call of what was not offered."""
        known = recipient in self._runners or recipient in self.callees
        return not known and channel != "final" and recipient not in PEOPLE

    def _begin(self, shape: Shape) -> None:
        for event in shape.begin():
            self._log.append(event)
        self._open = shape
        if isinstance(shape, FolderCall) and shape.waits:
            self._held = []
            return
        self._deltas = self._grow(shape)
        if isinstance(shape, FolderCall):
            self._filter = shape.new_filter()
        elif self._new_answer_text is not None and type(shape) is Message:
            self._filter = self._new_answer_text(shape.phase)
        if self._filter is None:
            self.pieces = self._deltas.pieces

    def _grow(self, shape: Shape) -> Deltas:
        scored = self._scored and type(shape) is Message
        return self._log.grow(shape.delta(), scored=scored)

    def answer(self, outcome: Any = None) -> None:
        """End a call that was run here, with this outcome for the client; None: it was broken
        off."""
        call, self._unanswered = self._unanswered, None
        if call is not None:
            output = self._log.settled()
            for event in call.answer(output[call.index], len(output), outcome):
                self._log.append(event)

    def call(self, new_call: NewCall, text: str) -> None:
        """Tell of a call that an earlier response has written, and that is run now."""
        self._begin(new_call(self.mint, len(self._log.output)))
        self._say((json_text(text.encode("utf-8", "surrogatepass")),))
        self._end("completed")

    def tell(self, added: OutputItem, steps: Sequence[NewStep], done: OutputItem) -> None:
        """Tell an item that no message of the model becomes, from its beginning to its end."""
        index = len(self._log.output)
        self._log.append(OutputItemAdded(index, added))
        for step in steps:
            self._log.append(step(added.id, index))
        self._log.append(OutputItemDone(index, done))

    @property
    def call_text(self) -> str:
        """The text of the call that is to be run here."""
        call = self._unanswered
        return call.text_of(self._log.output[call.index]) if call is not None else ""

    @property
    def unanswered(self) -> bool:
        """Whether a call is whole and has yet to be run here."""
        return self._unanswered is not None

    def _end(self, status: Literal["completed", "incomplete"]) -> None:
        shape, deltas, held = self._open, self._deltas, self._held
        if shape is None:
            self.answer()
            return
        if self._filter is not None:
            left = self._filter.finish(whole=status == "completed")
            self._say_filtered(left or ([b""] if self._untold else ()))
        elif deltas is not None and not deltas.pieces and shape.empty and status == "completed":
            deltas.pieces.append(shape.empty)
        self._open = self._deltas = self._filter = self.pieces = self._held = None
        if held is not None and isinstance(shape, FolderCall):
            text: str = orjson.loads(b'"%b"' % (b"".join(held) or json_text(shape.empty)))
            events = shape.at_once(text, status)
        else:
            events = shape.end(self._log.settled()[shape.index], status)
        for event in events:
            self._log.append(event)
        if isinstance(shape, FolderCall) and status == "completed" and shape.run_here:
            self._unanswered = shape
