"""The kinds of items that a message of the model becomes: the events of each, in their order.

A shape knows its item's ids and place, and keeps no text; when a shape begins and ends is the
machine's affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trt_responses.log.hosted_calls import HostedCall
from trt_responses.wire import events as e
from trt_responses.wire import output as o

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.log.action_calls import ActionKind

    Seal = Callable[[o.OutputReasoning, int], str]
    """What the client is to carry of a thought that has just been written."""


class Callee(NamedTuple):
    """A tool of the request, in the form in which the client sees its calls."""

    name: str
    namespace: str | None = None
    custom: bool = False
    action: ActionKind | None = None
    """The kind of action, of a tool for which the API says what a call is."""

    @property
    def kind(self) -> str:
        """The API's name for tools of this kind."""
        return self.action or ("custom" if self.custom else "function")


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

    def __init__(self, item_id: str, index: int, seal: Seal | None, message: int) -> None:
        """`message` is the number of this thought among the messages of the model."""
        self.id = item_id
        self.index = index
        self._seal = seal
        self._message = message

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
        return done if self._seal is None else o.sealed(done, self._seal(done, self._message))


class Summary(Reasoning):
    """A thought that is sent as its summary, since some clients show nothing else of it."""

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
    """A call of one of the client's functions. The arguments of a call without any are `{}`."""

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
        name, namespace, *_ = self._callee
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
        name, namespace, *_ = self._callee
        if namespace is None:
            return o.OutputCustomCall(self.id, self._call_id, name, written, status)
        return o.OutputNamespacedCustomCall(
            self.id, self._call_id, name, written, status, namespace=namespace
        )


Shape = Message | Reasoning | Call | CustomCall | HostedCall
