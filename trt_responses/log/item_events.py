"""The kinds of items that a message of the model becomes: the events of each, in their order.

A shape knows its item's ids and place, and keeps no text; when a shape begins and ends is the
machine's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from trt_responses.wire import events as e
from trt_responses.wire import output as o

Seal = Callable[[o.OutputReasoning, int], str]
"""What the client is to carry of a thought that has just been written."""
NewStep = Callable[[str, int], e.FolderEvent]
"""Makes an event of an item, from the item's id and index."""


class Callee(NamedTuple):
    """A tool of the request, in the form in which the client sees its calls."""

    name: str
    namespace: str | None = None
    custom: bool = False
    action: str | None = None
    """The kind of action, of a tool for which the API says what a call is."""

    @property
    def kind(self) -> str:
        """The API's name for tools of this kind."""
        return self.action or ("custom" if self.custom else "function")


class TextFilter(Protocol):
    """Gives the client's part of a text that the model writes, piece by piece, and events of it."""

    found: str | None
    """Set when one of the client's texts was found: nothing that follows is sent, and the model
    need not go on."""

    def feed(self, pieces: Sequence[bytes]) -> Sequence[bytes | NewStep]: ...

    def finish(self, *, whole: bool) -> Sequence[bytes | NewStep]: ...


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
            e.OutputItemDone(self.index, self.done(item, status)),
        )

    def done(self, item: o.OutputReasoning, status: o.Status) -> o.OutputReasoning:
        """The item at its end, with its seal."""
        done = o.OutputReasoning(self.id, status, item.content, item.summary)
        return done if self._seal is None else o.sealed(done, self._seal(done, self._message))


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


class FolderCall:
    """A call of a kind that a folder brings."""

    id: str
    index: int
    empty: bytes = b""
    """The text of a call that was written without one."""
    waits: bool = False
    """Whether its text is sent when it is whole, by `at_once`, and no delta of it before."""
    run_here: bool = False
    """Whether it is run here once it is whole, and `answer` ends it."""

    def new_filter(self) -> TextFilter | None:
        """Gives the client's part of its text; None: all of it is the client's."""
        return None

    def begin(self) -> Iterable[e.Event]:
        """The events at its beginning."""
        raise NotImplementedError

    def delta(self) -> e.Delta:
        """An event of a piece of its text, without that."""
        raise NotImplementedError

    def end(self, item: o.OutputItem, status: o.Status) -> Iterable[e.Event]:
        """The events at the end of a text that was sent in deltas."""
        raise NotImplementedError

    def at_once(self, written: str, status: o.Status) -> Iterable[e.Event]:
        """The events of a text that was waited for, and that the model has ended or was cut."""
        raise NotImplementedError

    def answer(self, item: o.OutputItem, index: int, outcome: Any) -> Iterable[e.Event]:
        """The events at the end of a call that was run here, as its folder says how it went; None:
        it was broken off. A further item has this index."""
        raise NotImplementedError

    def text_of(self, item: o.OutputItem) -> str:
        """The text that the model wrote, of a call that is run here."""
        raise NotImplementedError


Shape = Message | Reasoning | Call | FolderCall

Mint = Callable[[str], str]
CALLS: dict[str, Callable[[Mint, int, Callee], FolderCall]] = {}
"""What makes calls of the client's tools that are no functions, by the kinds of their callees."""
