"""The items of a request's input, spelled as the API spells them.

They are pydantic models, for they come from outside; what the server gives is in `output.py`, and
items of tools that others ran are those of `past_calls.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from trt_responses.wire.base import (
    ByType,
    ClientObject,
    InstalledKinds,
    Kinds,
    ListOf,
    NonEmpty,
    TextOrListOf,
)
from trt_responses.wire.fields import honoured
from trt_responses.wire.past_calls import KINDS, Installed


class TextPart(ClientObject):
    """Text in a message. Clients use all three names; they mean the same to a text model."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class RefusalPart(ClientObject):
    """A refusal in an assistant's message; the model reads it as text."""

    type: Literal["refusal"]
    refusal: str


MediaKind = Literal["input_image", "input_file", "input_audio", "input_video"]


class MediaPart(ClientObject):
    """A part that a text model cannot read: refused, or noted, as the operator chooses."""

    type: MediaKind


Part = Annotated[TextPart | RefusalPart | MediaPart, ByType()]
TextOrParts = TextOrListOf[Part]


class InputMessage(ClientObject):
    """What somebody says. Clients may leave out the type."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: TextOrParts
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCall(ClientObject):
    """A call of a client's function, sent as history."""

    type: Literal["function_call"]
    call_id: NonEmpty
    name: NonEmpty
    arguments: str
    namespace: str | None = None
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class FunctionCallOutput(ClientObject):
    """What a client's function gave. Without a call's id, the first call is meant that has no
    output yet, of those by the name where there is one."""

    type: Literal["function_call_output"]
    call_id: str | None = None
    output: TextOrParts
    name: str | None = None
    namespace: str | None = None
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class SummaryText(ClientObject):
    """A part of a thought's summary."""

    type: Literal["summary_text"]
    text: str


class ReasoningText(ClientObject):
    """A part of a thought."""

    type: Literal["reasoning_text", "text"]
    text: str


class Reasoning(ClientObject):
    """A reasoning item, sent as history in plain text or sealed."""

    type: Literal["reasoning"]
    summary: ListOf[SummaryText] = Field(default_factory=list)
    content: ListOf[ReasoningText] | None = None
    encrypted_content: str | None = None
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class Compaction(ClientObject):
    """A compaction item, sent back unchanged: it replaces a conversation's older messages."""

    type: Literal["compaction"]
    encrypted_content: Annotated[str, Field(min_length=1, max_length=10 * 1024 * 1024)]
    id: str | None = None


InputItem = Annotated[
    InputMessage | FunctionCall | FunctionCallOutput | Reasoning | Installed | Compaction,
    InstalledKinds(
        KINDS,
        *(kind for kind in honoured("input[].type=") if kind != "item_reference"),
        untyped="message",
    ),
]


class ItemReference(ClientObject):
    """An item's id in place of an item that was given before. Clients may leave out the type."""

    type: Literal["item_reference"] | None = None
    id: NonEmpty


def _reference_or_item(value: Any) -> str:
    if isinstance(value, ItemReference):
        return "~item_reference"
    named = value.get("type") if isinstance(value, dict) else ""
    refers = named == "item_reference" or (named is None and "id" in value and "role" not in value)
    return "~item_reference" if refers else "~item"


SentItem = Annotated[
    ItemReference | InputItem, Kinds(_reference_or_item, "~item_reference", "~item")
]
"""One entry of a request's input."""


class ItemPlace(NamedTuple):
    """The place of an item in a request, in the words of the API that sent it: for faults."""

    item: str
    parts: str | None = None
    """The list of its parts; None: the item's own `content` or `output`."""
    first: int = 0
    """The number of its first part in that list."""
    call_id: str = "call_id"
    sealed: str = "encrypted_content"

    def part(self, number: int, usual: str) -> str:
        return f"{self.parts or f'{self.item}.{usual}'}[{self.first + number}]"
