"""The API's stream events, as values with no behaviour, spelled as the API spells them.

`sequence_number` is not a field: the log stamps it, so no event ever holds a placeholder. Like all
values that are written down they have no slots: orjson takes 8 times as long over those.
"""

from __future__ import annotations

from typing import Literal

from trt_responses.frozen import dataclass
from trt_responses.wire.output import (
    OutputItem,
    OutputPart,
    TokenLogprob,
)
from trt_responses.wire.response import Response


@dataclass(frozen=True)
class OfResponse:
    """A step of the response's life, with the response as it is then."""

    response: Response


@dataclass(frozen=True)
class OfItem:
    """An event of an item of the output."""

    item_id: str
    output_index: int


@dataclass(frozen=True)
class OfContent(OfItem):
    """An event of a part of an item's content."""

    content_index: int


@dataclass(frozen=True)
class Created(OfResponse):
    """The response was created."""

    type: Literal["response.created"] = "response.created"


@dataclass(frozen=True)
class Queued(OfResponse):
    """The response waits for its turn."""

    type: Literal["response.queued"] = "response.queued"


@dataclass(frozen=True)
class InProgress(OfResponse):
    """The response is being made."""

    type: Literal["response.in_progress"] = "response.in_progress"


@dataclass(frozen=True)
class Completed(OfResponse):
    """The response is complete."""

    type: Literal["response.completed"] = "response.completed"
    stop: str | None = None
    """The text of the client's at which it stopped: not every API tells it."""


@dataclass(frozen=True)
class Incomplete(OfResponse):
    """The response ended before it was complete."""

    type: Literal["response.incomplete"] = "response.incomplete"


@dataclass(frozen=True)
class Failed(OfResponse):
    """The response failed."""

    type: Literal["response.failed"] = "response.failed"


@dataclass(frozen=True)
class OutputItemAdded:
    """An item begins."""

    output_index: int
    item: OutputItem
    type: Literal["response.output_item.added"] = "response.output_item.added"


@dataclass(frozen=True)
class OutputItemDone:
    """An item is whole."""

    output_index: int
    item: OutputItem
    type: Literal["response.output_item.done"] = "response.output_item.done"


@dataclass(frozen=True)
class ContentPartAdded(OfContent):
    """A part of an item's content begins."""

    part: OutputPart
    type: Literal["response.content_part.added"] = "response.content_part.added"


@dataclass(frozen=True)
class ContentPartDone(OfContent):
    """A part of an item's content is whole."""

    part: OutputPart
    type: Literal["response.content_part.done"] = "response.content_part.done"


@dataclass(frozen=True)
class OutputTextDelta(OfContent):
    """A piece of a message's text."""

    delta: str
    logprobs: tuple[TokenLogprob, ...] = ()
    type: Literal["response.output_text.delta"] = "response.output_text.delta"


@dataclass(frozen=True)
class OutputTextDone(OfContent):
    """The whole text of a message."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    type: Literal["response.output_text.done"] = "response.output_text.done"


@dataclass(frozen=True)
class ReasoningTextDelta(OfContent):
    """A piece of a thought."""

    delta: str
    type: Literal["response.reasoning_text.delta"] = "response.reasoning_text.delta"


@dataclass(frozen=True)
class ReasoningTextDone(OfContent):
    """The whole text of a thought."""

    text: str
    type: Literal["response.reasoning_text.done"] = "response.reasoning_text.done"


@dataclass(frozen=True)
class FunctionCallArgumentsDelta(OfItem):
    """A piece of a call's arguments."""

    delta: str
    type: Literal["response.function_call_arguments.delta"] = (
        "response.function_call_arguments.delta"
    )


@dataclass(frozen=True)
class FunctionCallArgumentsDone(OfItem):
    """The whole arguments of a call."""

    arguments: str
    name: str
    type: Literal["response.function_call_arguments.done"] = "response.function_call_arguments.done"


class FolderEvent:
    """An event of an item, of a kind that a folder brings."""

    output_index: int
    type: str

    def changed(self, item: OutputItem) -> OutputItem:
        """The item after the event."""
        return item


@dataclass(frozen=True)
class FolderDelta(OfItem, FolderEvent):
    """A piece of a text of such an item."""

    delta: str


@dataclass(frozen=True)
class Error:
    """Comes before `Failed`, for clients that look for it; the flat form of the OpenAI SDKs."""

    code: str | None
    message: str
    param: str | None = None
    type: Literal["error"] = "error"


Terminal = Completed | Incomplete | Failed
Lifecycle = Created | Queued | InProgress | Terminal
Delta = OutputTextDelta | ReasoningTextDelta | FunctionCallArgumentsDelta | FolderDelta
ItemEvent = (
    ContentPartAdded
    | ContentPartDone
    | Delta
    | OutputTextDone
    | ReasoningTextDone
    | FunctionCallArgumentsDone
    | FolderEvent
)
"""What changes an item that was added before."""

OutputEvent = OutputItemAdded | OutputItemDone | ItemEvent
Event = Lifecycle | OutputEvent | Error
