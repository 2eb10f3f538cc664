"""Turns fragments into events: which item a message of the model becomes, and which events say so.

Two rules for the file: every legal move is in the table `OPENS` or in one shape of
`item_events.py`, and no text is kept here; a text as a whole is read back from the log's fold. It
knows no token and no HTTP.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, Protocol

from trt_responses.frozen import replace
from trt_responses.language.fragments import Closed, Opened, Repaired, RepairKind, Scored, Text
from trt_responses.response.log.entries import ScoredDeltas
from trt_responses.response.log.item_events import (
    Call,
    CodeCall,
    CustomCall,
    Message,
    Reasoning,
    Summary,
)
from trt_responses.response.log.item_events import Callee as Callee
from trt_responses.wire.events import OutputItemAdded, OutputItemDone
from trt_responses.wire.output import OutputCodeCall, OutputReasoning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trt_responses.language.fragments import Fragment
    from trt_responses.response.log.entries import Deltas
    from trt_responses.response.log.item_events import Runner, Seal, Shape
    from trt_responses.response.log.log import Log
    from trt_responses.wire.output import CodeStatus

    Mint = Callable[[str], str]


class TextFilter(Protocol):
    """What the client gets of a text that the model writes, as it is written."""

    found: str | None
    """A text of the client's was found: nothing that follows is told, and the model need not go
    on."""

    def feed(self, pieces: Sequence[bytes]) -> Sequence[bytes]: ...

    def finish(self, *, whole: bool) -> Sequence[bytes]: ...


Opens = Literal["reasoning", "commentary", "final_answer"]

OPENS: Mapping[str | None, Opens] = {
    "analysis": "reasoning",
    "commentary": "commentary",  # a preamble: text before or between calls, for the user to read
    "final": "final_answer",
    None: "final_answer",
}
"""What a message to the user becomes, by its channel. A message to an offered tool is a call."""


class Machine:
    """Makes the events of one response. One item is open at a time, or none."""

    def __init__(
        self,
        log: Log,
        callees: Mapping[str, Callee],
        mint: Mint,
        input_text: Callable[[], TextFilter],
        seal: Seal | None = None,
        *,
        answer_text: Callable[[], TextFilter] | None = None,
        scored: bool = False,
        runners: Mapping[str, Runner] | None = None,
        summarised: bool = False,
    ) -> None:
        """`runners` are the tools that are run here, by the recipients of their calls; with
        `summarised`, thoughts are told as their summaries."""
        self._new_thought = Summary if summarised else Reasoning
        self._log = log
        self._runners = runners or {}
        self._scored = scored
        self._seal = seal
        self.callees = callees
        self._mint = mint
        self._open: Shape | None = None
        self._deltas: Deltas | None = None
        self._new_input_text = input_text
        self._new_answer_text = answer_text
        self._filter: TextFilter | None = None
        self._unanswered: CodeCall | None = None
        self.pieces: list[bytes] | None = None
        """Where text of the open message goes as it is read: the last entry of the log. None when
        nothing is open, or the model's text is not yet the client's."""
        self.repairs: Counter[RepairKind] = Counter()
        self.stopped: str | None = None
        """The text of the client's own at which the answer stopped."""

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
        elif self._deltas is not None and self._filter is not None:
            self._deltas.pieces += self._filter.feed(pieces)
            self.stopped = self._filter.found

    def _say_scored(self, said: Scored) -> None:
        if isinstance(self._deltas, ScoredDeltas):
            self._deltas.logprobs += said.logprobs
        self._say(said.pieces)

    def _shape(self, opened: Opened) -> Shape:
        index = len(self._log.output)
        runner = self._runners.get(opened.recipient) if opened.recipient else None
        if runner is not None:
            return CodeCall(self._mint("ci"), index, runner)
        callee = self.callees.get(opened.recipient) if opened.recipient else None
        if callee is not None and callee.custom:
            return CustomCall(self._mint("ctc"), index, callee, self._mint("call"))
        if callee is not None:
            return Call(self._mint("fc"), index, callee, self._mint("call"))
        if opened.recipient:
            self.repairs["unknown_recipient"] += 1
        opens = OPENS.get(opened.channel, "final_answer")
        if opens == "reasoning":
            return self._new_thought(self._mint("rs"), index, self._seal)
        return Message(self._mint("msg"), index, opens)

    def _begin(self, shape: Shape) -> None:
        for event in shape.begin():
            self._log.append(event)
        self._open = shape
        self._deltas = self._log.grow(shape.delta(), scored=self._scored and type(shape) is Message)
        if type(shape) is CustomCall:
            self._filter = self._new_input_text()
        elif (
            self._new_answer_text is not None
            and type(shape) is Message
            and shape.phase == "final_answer"
        ):
            self._filter = self._new_answer_text()
        else:
            self.pieces = self._deltas.pieces

    def answer(self, text: str | None, status: CodeStatus) -> None:
        """A call that was run here has ended, with this for the client."""
        call, self._unanswered = self._unanswered, None
        if call is not None:
            for event in call.answer(self._log.settled()[call.index], text, status):
                self._log.append(event)

    def add_carrier(self) -> None:
        """A thought that says nothing, where there is none to carry what a tool has answered: the
        client brings it back with the seal that the last snapshot gives it."""
        kinds = {item.type for item in self._log.output}
        if self._seal is None or "reasoning" in kinds or "code_interpreter_call" not in kinds:
            return
        index, item = len(self._log.output), OutputReasoning(self._mint("rs"))
        self._log.append(OutputItemAdded(index, item))
        self._log.append(OutputItemDone(index, replace(item, status="completed")))

    @property
    def call_text(self) -> str:
        """What the call says that is to be run here."""
        call = self._unanswered
        item = self._log.output[call.index] if call is not None else None
        return item.code if isinstance(item, OutputCodeCall) else ""

    @property
    def unanswered(self) -> bool:
        """A call is whole, and to be run here."""
        return self._unanswered is not None

    def _end(self, status: Literal["completed", "incomplete"]) -> None:
        shape, deltas = self._open, self._deltas
        if shape is None or deltas is None:
            if self._unanswered is not None:
                self.answer(None, "incomplete")
            return
        if self._filter is not None:
            deltas.pieces += self._filter.finish(whole=status == "completed")
        elif status == "completed" and not deltas.pieces and shape.empty:
            deltas.pieces.append(shape.empty)
        self._open = self._deltas = self._filter = self.pieces = None
        for event in shape.end(self._log.settled()[shape.index], status):
            self._log.append(event)
        if type(shape) is CodeCall and status == "completed":
            self._unanswered = shape
