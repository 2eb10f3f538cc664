"""Fragments to events: which item a message of the model becomes, and what is said of it when.

Two rules for the file: every legal move is in the table `OPENS` or in one `_Shape`, and no text is
kept here; a text as a whole is read back from the log's fold. It knows no token and no HTTP.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from trt_responses.harmony.fragments import Closed, Opened, Repaired, RepairKind, Text
from trt_responses.wire import events as e
from trt_responses.wire import items as i

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trt_responses.harmony.fragments import Fragment
    from trt_responses.response.log import Deltas, Log

    Mint = Callable[[str], str]

Opens = Literal["reasoning", "commentary", "final_answer"]

OPENS: Mapping[str | None, Opens] = {
    "analysis": "reasoning",
    "commentary": "commentary",  # a preamble: text before or between calls, for the user to read
    "final": "final_answer",
    None: "final_answer",
}
"""What a message to the user becomes, by its channel. A message to an offered tool is a call."""


class Callee(NamedTuple):
    """A tool of the request, as its call is told to the client."""

    name: str


class Machine:
    """Makes the events of one response. One item is open at a time, or none."""

    def __init__(self, log: Log, callees: Mapping[str, Callee], mint: Mint) -> None:
        self._log = log
        self._callees = callees
        self._mint = mint
        self._open: _Shape | None = None
        self._deltas: Deltas | None = None
        self.repairs: Counter[RepairKind] = Counter()

    def take(self, fragment: Fragment) -> None:
        if type(fragment) is Text:
            if (deltas := self._deltas) is not None:
                deltas.pieces += fragment.pieces
        elif type(fragment) is Opened:
            self._begin(self._shape(fragment))
        elif type(fragment) is Closed:
            self._end("completed" if fragment.whole else "incomplete")
        elif type(fragment) is Repaired:
            self.repairs[fragment.kind] += 1

    def _shape(self, opened: Opened) -> _Shape:
        index = len(self._log.output)
        callee = self._callees.get(opened.recipient) if opened.recipient else None
        if callee is not None:
            return _Call(self._mint("fc"), index, callee, self._mint("call"))
        if opened.recipient:
            self.repairs["unknown_recipient"] += 1
        opens = OPENS.get(opened.channel, "final_answer")
        if opens == "reasoning":
            return _Reasoning(self._mint("rs"), index)
        return _Message(self._mint("msg"), index, opens)

    def _begin(self, shape: _Shape) -> None:
        for event in shape.begin():
            self._log.append(event)
        self._open = shape
        self._deltas = self._log.grow(shape.delta())

    def _end(self, status: Literal["completed", "incomplete"]) -> None:
        shape, deltas = self._open, self._deltas
        if shape is None or deltas is None:
            return
        if status == "completed" and not deltas.pieces and shape.empty:
            deltas.pieces.append(shape.empty)
        self._open = self._deltas = None
        for event in shape.end(self._log.output[shape.index], status):
            self._log.append(event)


class _Message:
    """A message to the user: one item, one text part."""

    empty = b""

    def __init__(self, item_id: str, index: int, phase: i.Phase) -> None:
        self.id = item_id
        self.index = index
        self._phase: i.Phase = phase

    def begin(self) -> tuple[e.Event, ...]:
        return (
            e.OutputItemAdded(self.index, i.OutputMessage(self.id, self._phase)),
            e.ContentPartAdded(self.id, self.index, 0, i.OutputText()),
        )

    def delta(self) -> e.Delta:
        return e.OutputTextDelta(self.id, self.index, 0, "")

    def end(self, item: i.OutputItem, status: i.Status) -> tuple[e.Event, ...]:
        assert isinstance(item, i.OutputMessage)
        (part,) = item.content
        return (
            e.OutputTextDone(self.id, self.index, 0, part.text),
            e.ContentPartDone(self.id, self.index, 0, part),
            e.OutputItemDone(
                self.index, i.OutputMessage(self.id, self._phase, status, item.content)
            ),
        )


class _Reasoning:
    """A chain of thought: one item, one part of reasoning text."""

    empty = b""

    def __init__(self, item_id: str, index: int) -> None:
        self.id = item_id
        self.index = index

    def begin(self) -> tuple[e.Event, ...]:
        return (
            e.OutputItemAdded(self.index, i.OutputReasoning(self.id)),
            e.ContentPartAdded(self.id, self.index, 0, i.OutputReasoningText()),
        )

    def delta(self) -> e.Delta:
        return e.ReasoningTextDelta(self.id, self.index, 0, "")

    def end(self, item: i.OutputItem, status: i.Status) -> tuple[e.Event, ...]:
        assert isinstance(item, i.OutputReasoning)
        (part,) = item.content
        return (
            e.ReasoningTextDone(self.id, self.index, 0, part.text),
            e.ContentPartDone(self.id, self.index, 0, part),
            e.OutputItemDone(self.index, i.OutputReasoning(self.id, status, item.content)),
        )


class _Call:
    """A call of one of the client's functions. A call without arguments is `{}`, not nothing."""

    empty = b"{}"

    def __init__(self, item_id: str, index: int, callee: Callee, call_id: str) -> None:
        self.id = item_id
        self.index = index
        self._callee = callee
        self._call_id = call_id

    def begin(self) -> tuple[e.Event, ...]:
        return (e.OutputItemAdded(self.index, self._item("", "in_progress")),)

    def delta(self) -> e.Delta:
        return e.FunctionCallArgumentsDelta(self.id, self.index, "")

    def end(self, item: i.OutputItem, status: i.Status) -> tuple[e.Event, ...]:
        assert isinstance(item, i.OutputFunctionCall)
        arguments = item.arguments
        return (
            e.FunctionCallArgumentsDone(self.id, self.index, arguments, self._callee.name),
            e.OutputItemDone(self.index, self._item(arguments, status)),
        )

    def _item(self, arguments: str, status: i.Status) -> i.OutputFunctionCall:
        return i.OutputFunctionCall(self.id, self._call_id, self._callee.name, arguments, status)


_Shape = _Message | _Reasoning | _Call
