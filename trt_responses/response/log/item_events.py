"""The kinds of items that a message of the model becomes: the events of each, in their order.

A shape knows its item's ids and place, and keeps no text; when a shape begins and ends is the
machine's affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trt_responses.wire import events as e
from trt_responses.wire import output as o

if TYPE_CHECKING:
    from collections.abc import Callable

    Seal = Callable[[o.OutputReasoning, int], str]
    """What the client is to carry of a thought that has just been written."""


class Callee(NamedTuple):
    """A tool of the request, as its call is told to the client."""

    name: str
    namespace: str | None = None
    custom: bool = False


class Runner(NamedTuple):
    """A tool that is run here, as its calls are told to the client."""

    container_id: str
    shows_outputs: bool


class Message:
    """A message to the user: one item, one text part."""

    empty = b""

    def __init__(self, item_id: str, index: int, phase: o.Phase) -> None:
        self.id = item_id
        self.index = index
        self.phase: o.Phase = phase

    def begin(self) -> tuple[e.Event, ...]:
        return (
            e.OutputItemAdded(self.index, o.OutputMessage(self.id, self.phase)),
            e.ContentPartAdded(self.id, self.index, 0, o.OutputText()),
        )

    def delta(self) -> e.Delta:
        return e.OutputTextDelta(self.id, self.index, 0, "")

    def end(self, item: o.OutputItem, status: o.Status) -> tuple[e.Event, ...]:
        assert isinstance(item, o.OutputMessage)
        (part,) = item.content
        return (
            e.OutputTextDone(self.id, self.index, 0, part.text, part.logprobs),
            e.ContentPartDone(self.id, self.index, 0, part),
            e.OutputItemDone(
                self.index, o.OutputMessage(self.id, self.phase, status, item.content)
            ),
        )


class Reasoning:
    """A chain of thought: one item, one part of reasoning text."""

    empty = b""

    def __init__(self, item_id: str, index: int, seal: Seal | None) -> None:
        self.id = item_id
        self.index = index
        self._seal = seal

    def begin(self) -> tuple[e.Event, ...]:
        return (
            e.OutputItemAdded(self.index, o.OutputReasoning(self.id)),
            e.ContentPartAdded(self.id, self.index, 0, o.OutputReasoningText()),
        )

    def delta(self) -> e.Delta:
        return e.ReasoningTextDelta(self.id, self.index, 0, "")

    def end(self, item: o.OutputItem, status: o.Status) -> tuple[e.Event, ...]:
        assert isinstance(item, o.OutputReasoning)
        (part,) = item.content
        return (
            e.ReasoningTextDone(self.id, self.index, 0, part.text),
            e.ContentPartDone(self.id, self.index, 0, part),
            e.OutputItemDone(self.index, self._done(item, status)),
        )

    def _done(self, item: o.OutputReasoning, status: o.Status) -> o.OutputReasoning:
        done = o.OutputReasoning(self.id, status, item.content, item.summary)
        return done if self._seal is None else o.sealed(done, self._seal(done, self.index))


class Summary(Reasoning):
    """A thought that is told as its summary: some clients show nothing else of it."""

    def begin(self) -> tuple[e.Event, ...]:
        return (
            e.OutputItemAdded(self.index, o.OutputReasoning(self.id)),
            e.ReasoningSummaryPartAdded(self.id, self.index, 0, o.OutputSummaryText()),
        )

    def delta(self) -> e.Delta:
        return e.ReasoningSummaryTextDelta(self.id, self.index, 0, "")

    def end(self, item: o.OutputItem, status: o.Status) -> tuple[e.Event, ...]:
        assert isinstance(item, o.OutputReasoning)
        (part,) = item.summary
        return (
            e.ReasoningSummaryTextDone(self.id, self.index, 0, part.text),
            e.ReasoningSummaryPartDone(self.id, self.index, 0, part),
            e.OutputItemDone(self.index, self._done(item, status)),
        )


class Call:
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

    def end(self, item: o.OutputItem, status: o.Status) -> tuple[e.Event, ...]:
        assert isinstance(item, o.OutputFunctionCall)
        arguments = item.arguments
        return (
            e.FunctionCallArgumentsDone(self.id, self.index, arguments, self._callee.name),
            e.OutputItemDone(self.index, self._item(arguments, status)),
        )

    def _item(self, arguments: str, status: o.Status) -> o.OutputFunctionCall:
        name, namespace, _ = self._callee
        if namespace is None:
            return o.OutputFunctionCall(self.id, self._call_id, name, arguments, status)
        return o.OutputNamespacedCall(
            self.id, self._call_id, name, arguments, status, namespace=namespace
        )


class CustomCall:
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

    def end(self, item: o.OutputItem, status: o.Status) -> tuple[e.Event, ...]:
        assert isinstance(item, o.OutputCustomCall)
        return (
            e.CustomToolCallInputDone(self.id, self.index, item.input),
            e.OutputItemDone(self.index, self._item(item.input, status)),
        )

    def _item(self, written: str, status: o.Status) -> o.OutputCustomCall:
        name, namespace, _ = self._callee
        if namespace is None:
            return o.OutputCustomCall(self.id, self._call_id, name, written, status)
        return o.OutputNamespacedCustomCall(
            self.id, self._call_id, name, written, status, namespace=namespace
        )


class CodeCall:
    """Code that is run here: its item ends when the code has, with what it gave."""

    empty = b""

    def __init__(self, item_id: str, index: int, runner: Runner) -> None:
        self.id = item_id
        self.index = index
        self._runner = runner

    def begin(self) -> tuple[e.Event, ...]:
        item = o.OutputCodeCall(self.id, self._runner.container_id)
        return (
            e.OutputItemAdded(self.index, item),
            e.CodeCallInProgress(self.id, self.index),
        )

    def delta(self) -> e.Delta:
        return e.CodeDelta(self.id, self.index, "")

    def end(self, item: o.OutputItem, status: o.Status) -> tuple[e.Event, ...]:
        """The end of the code; of the item too, where the code was cut and is not run."""
        assert isinstance(item, o.OutputCodeCall)
        done = e.CodeDone(self.id, self.index, item.code)
        if status == "completed":
            return (done, e.CodeCallInterpreting(self.id, self.index))
        return (done, self._done(item, None, "incomplete"))

    def answer(
        self, item: o.OutputItem, text: str | None, status: o.CodeStatus
    ) -> tuple[e.Event, ...]:
        """The end of the item: what the code gave, or None where it was broken off."""
        assert isinstance(item, o.OutputCodeCall)
        done = self._done(item, text, status)
        if status == "completed":
            return (e.CodeCallCompleted(self.id, self.index), done)
        return (done,)

    def _done(
        self, item: o.OutputCodeCall, text: str | None, status: o.CodeStatus
    ) -> e.OutputItemDone:
        outputs = None
        if self._runner.shows_outputs:
            outputs = (o.CodeLogs(text),) if text else ()
        call = o.OutputCodeCall(self.id, self._runner.container_id, item.code, outputs, status)
        return e.OutputItemDone(self.index, call)


Shape = Message | Reasoning | Call | CustomCall | CodeCall
