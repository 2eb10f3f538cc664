"""The API's items: what a client may send, and what the server gives.

Input items are pydantic models, for they come from outside; output items are frozen values, for we
make them. Spelled as the API spells them; imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

# --- what a client may send -----------------------------------------------------------------


class Sent(BaseModel):
    """What all input shares: strict types, no change after parsing, unknown keys kept by name."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, hide_input_in_errors=True)


def by_type(*tags: str, untyped: str = "") -> Discriminator:
    """Choose by `type`; tags begin with `~`, so that a fault's place can leave them out."""
    known = {tag: f"~{tag}" for tag in tags}

    def tag(value: Any) -> str | None:
        named = value.get("type", untyped) if isinstance(value, dict) else None
        return known.get(named) if isinstance(named, str) else None

    expected = ", ".join(repr(t) for t in tags)
    return Discriminator(
        tag,
        custom_error_type="unknown_type",
        custom_error_message=f"should be an object whose type is one of {expected}",
    )


Named = Annotated[str, Field(min_length=1)]


class TextPart(Sent):
    """Text in a message. Clients use all three names; they mean the same to a text model."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class RefusalPart(Sent):
    type: Literal["refusal"]
    refusal: str


Part = Annotated[
    Annotated[TextPart, Tag("~input_text")]
    | Annotated[TextPart, Tag("~output_text")]
    | Annotated[TextPart, Tag("~text")]
    | Annotated[RefusalPart, Tag("~refusal")],
    by_type("input_text", "output_text", "text", "refusal"),
]


def _text_or_list(value: Any) -> str:
    return "~list" if isinstance(value, list) else "~text"


TEXT_OR_LIST = Discriminator(_text_or_list)
"""A string, or a list: the fault names the place in the list, not two failed guesses."""

TextOrParts = Annotated[
    Annotated[str, Tag("~text")] | Annotated[list[Part], Tag("~list")], TEXT_OR_LIST
]


class InputMessage(Sent):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: TextOrParts
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCall(Sent):
    type: Literal["function_call"]
    call_id: Named
    name: Named
    arguments: str
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class FunctionCallOutput(Sent):
    type: Literal["function_call_output"]
    call_id: str
    output: TextOrParts
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class SummaryText(Sent):
    type: Literal["summary_text"]
    text: str


class ReasoningText(Sent):
    type: Literal["reasoning_text", "text"]
    text: str


class Reasoning(Sent):
    type: Literal["reasoning"]
    summary: list[SummaryText] = []
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


InputItem = Annotated[
    Annotated[InputMessage, Tag("~message")]
    | Annotated[FunctionCall, Tag("~function_call")]
    | Annotated[FunctionCallOutput, Tag("~function_call_output")]
    | Annotated[Reasoning, Tag("~reasoning")],
    by_type("message", "function_call", "function_call_output", "reasoning", untyped="message"),
]

# --- what the server gives -------------------------------------------------------------------

Status = Literal["in_progress", "completed", "incomplete"]
Phase = Literal["commentary", "final_answer"]


@dataclass(frozen=True, slots=True)
class OutputText:
    text: str = ""
    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()
    type: Literal["output_text"] = "output_text"


@dataclass(frozen=True, slots=True)
class OutputReasoningText:
    text: str = ""
    type: Literal["reasoning_text"] = "reasoning_text"


@dataclass(frozen=True, slots=True)
class OutputMessage:
    id: str
    phase: Phase
    status: Status = "in_progress"
    content: tuple[OutputText, ...] = ()
    role: Literal["assistant"] = "assistant"
    type: Literal["message"] = "message"


@dataclass(frozen=True, slots=True)
class OutputReasoning:
    id: str
    status: Status = "in_progress"
    content: tuple[OutputReasoningText, ...] = ()
    summary: tuple[()] = ()
    encrypted_content: str | None = None
    type: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True, slots=True)
class OutputFunctionCall:
    id: str
    call_id: str
    name: str
    arguments: str = ""
    status: Status = "in_progress"
    type: Literal["function_call"] = "function_call"


OutputItem = OutputMessage | OutputReasoning | OutputFunctionCall
OutputPart = OutputText | OutputReasoningText
