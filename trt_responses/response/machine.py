"""Fragments to events: which item a message of the model becomes, and what is said of it when.

Two rules for the file: every legal move is in the table `OPENS` or in one `_Shape`, and no text is
kept here; a text as a whole is read back from the log's fold. It knows no token and no HTTP.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from trt_responses.harmony.fragments import Closed, Opened, Repaired, RepairKind, Scored, Text
from trt_responses.harmony.unwrap import Unwrapper
from trt_responses.response.log import ScoredDeltas
from trt_responses.wire import events as e
from trt_responses.wire import items as i

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trt_responses.harmony.fragments import Fragment
    from trt_responses.response.log import Deltas, Log

    Mint = Callable[[str], str]
    Seal = Callable[[i.OutputReasoning, int], str | None]
    """What the client is to carry of a thought that has just been written."""

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
    namespace: str | None = None
    custom: bool = False


class Machine:
    """Makes the events of one response. One item is open at a time, or none."""

    def __init__(
        self,
        log: Log,
        callees: Mapping[str, Callee],
        mint: Mint,
        seal: Seal | None = None,
        *,
        scored: bool = False,
    ) -> None:
        self._log = log
        self._scored = scored
        self._seal = seal
        self._callees = callees
        self._mint = mint
        self._open: _Shape | None = None
        self._deltas: Deltas | None = None
        self._wrapped: tuple[Deltas, Unwrapper] | None = None
        """In the place of `_deltas`, where the model's text is not yet the client's."""
        self.repairs: Counter[RepairKind] = Counter()

    def take(self, fragment: Fragment) -> None:
        if type(fragment) is Text:
            self.say(fragment.pieces)
        elif type(fragment) is Opened:
            self._begin(self._shape(fragment))
        elif type(fragment) is Closed:
            self._end("completed" if fragment.whole else "incomplete")
        elif type(fragment) is Repaired:
            self.repairs[fragment.kind] += 1
        elif type(fragment) is Scored:
            self._say_scored(fragment)

    def say(self, pieces: Sequence[bytes]) -> None:
        """Text of the open message; what one engine step said of it is a list of pieces."""
        if (deltas := self._deltas) is not None:
            deltas.pieces += pieces
        elif self._wrapped is not None:
            hidden, unwrapper = self._wrapped
            hidden.pieces += unwrapper.feed(pieces)

    def _say_scored(self, said: Scored) -> None:
        if isinstance(self._deltas, ScoredDeltas):
            self._deltas.logprobs += said.logprobs
        self.say(said.pieces)

    def _shape(self, opened: Opened) -> _Shape:
        index = len(self._log.output)
        callee = self._callees.get(opened.recipient) if opened.recipient else None
        if callee is not None and callee.custom:
            return _CustomCall(self._mint("ctc"), index, callee, self._mint("call"))
        if callee is not None:
            return _Call(self._mint("fc"), index, callee, self._mint("call"))
        if opened.recipient:
            self.repairs["unknown_recipient"] += 1
        opens = OPENS.get(opened.channel, "final_answer")
        if opens == "reasoning":
            return _Reasoning(self._mint("rs"), index, self._seal)
        return _Message(self._mint("msg"), index, opens)

    def _begin(self, shape: _Shape) -> None:
        for event in shape.begin():
            self._log.append(event)
        self._open = shape
        deltas = self._log.grow(shape.delta(), scored=self._scored and type(shape) is _Message)
        if type(shape) is _CustomCall:
            self._wrapped = deltas, Unwrapper()
        else:
            self._deltas = deltas

    def _end(self, status: Literal["completed", "incomplete"]) -> None:
        shape, deltas, wrapped = self._open, self._deltas, self._wrapped
        if shape is None:
            return
        if wrapped is not None:
            hidden, unwrapper = wrapped
            hidden.pieces += unwrapper.finish(whole=status == "completed")
            self._wrapped = None
        elif status == "completed" and deltas is not None and not deltas.pieces and shape.empty:
            deltas.pieces.append(shape.empty)
        self._open = self._deltas = None
        for event in shape.end(self._log.settled()[shape.index], status):
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
            e.OutputTextDone(self.id, self.index, 0, part.text, part.logprobs),
            e.ContentPartDone(self.id, self.index, 0, part),
            e.OutputItemDone(
                self.index, i.OutputMessage(self.id, self._phase, status, item.content)
            ),
        )


class _Reasoning:
    """A chain of thought: one item, one part of reasoning text."""

    empty = b""

    def __init__(self, item_id: str, index: int, seal: Seal | None) -> None:
        self.id = item_id
        self.index = index
        self._seal = seal

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
        done = i.OutputReasoning(self.id, status, item.content)
        if self._seal is not None:
            done = i.sealed(done, self._seal(done, self.index))
        return (
            e.ReasoningTextDone(self.id, self.index, 0, part.text),
            e.ContentPartDone(self.id, self.index, 0, part),
            e.OutputItemDone(self.index, done),
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
        name, namespace, _ = self._callee
        if namespace is None:
            return i.OutputFunctionCall(self.id, self._call_id, name, arguments, status)
        return i.OutputNamespacedCall(
            self.id, self._call_id, name, arguments, status, namespace=namespace
        )


class _CustomCall:
    """A call of one of the client's custom tools, whose text the model wraps in JSON."""

    empty = b""

    def __init__(self, item_id: str, index: int, callee: Callee, call_id: str) -> None:
        self.id = item_id
        self.index = index
        self._callee = callee
        self._call_id = call_id

    def begin(self) -> tuple[e.Event, ...]:
        return (e.OutputItemAdded(self.index, self._item("", "in_progress")),)

    def delta(self) -> e.Delta:
        return e.CustomToolCallInputDelta(self.id, self.index, "")

    def end(self, item: i.OutputItem, status: i.Status) -> tuple[e.Event, ...]:
        assert isinstance(item, i.OutputCustomCall)
        return (
            e.CustomToolCallInputDone(self.id, self.index, item.input),
            e.OutputItemDone(self.index, self._item(item.input, status)),
        )

    def _item(self, written: str, status: i.Status) -> i.OutputCustomCall:
        name, namespace, _ = self._callee
        if namespace is None:
            return i.OutputCustomCall(self.id, self._call_id, name, written, status)
        return i.OutputNamespacedCustomCall(
            self.id, self._call_id, name, written, status, namespace=namespace
        )


_Shape = _Message | _Reasoning | _Call | _CustomCall
