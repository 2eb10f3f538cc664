"""The API's items: what a client may send, and what the server gives.

Input items are pydantic models, for they come from outside; output items are frozen values, for we
make them. Spelled as the API spells them; imports nothing of ours.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from trt_responses.frozen import dataclass
from trt_responses.wire import hosted_items
from trt_responses.wire.base import Named as Named
from trt_responses.wire.base import Sent as Sent
from trt_responses.wire.base import by_type as by_type
from trt_responses.wire.fields import honoured

# --- what a client may send -----------------------------------------------------------------


class TextPart(Sent):
    """Text in a message. Clients use all three names; they mean the same to a text model."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class RefusalPart(Sent):
    type: Literal["refusal"]
    refusal: str


class MediaPart(Sent):
    """What a text model cannot read: refused, or noted, as the operator chooses."""

    type: Literal["input_image", "input_file", "input_audio", "input_video"]


Part = Annotated[
    Annotated[TextPart, Tag("~input_text")]
    | Annotated[TextPart, Tag("~output_text")]
    | Annotated[TextPart, Tag("~text")]
    | Annotated[RefusalPart, Tag("~refusal")]
    | Annotated[MediaPart, Tag("~input_image")]
    | Annotated[MediaPart, Tag("~input_file")]
    | Annotated[MediaPart, Tag("~input_audio")]
    | Annotated[MediaPart, Tag("~input_video")],
    by_type(
        *("input_text", "output_text", "text", "refusal"),
        *("input_image", "input_file", "input_audio", "input_video"),
    ),
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
    namespace: str | None = None
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class FunctionCallOutput(Sent):
    type: Literal["function_call_output"]
    call_id: str
    output: TextOrParts
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class CustomToolCall(Sent):
    type: Literal["custom_tool_call"]
    call_id: Named
    name: Named
    input: str
    namespace: str | None = None
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class CustomToolCallOutput(Sent):
    type: Literal["custom_tool_call_output"]
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
    summary: list[SummaryText] = Field(default_factory=list)
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


InputItem = Annotated[
    Annotated[InputMessage, Tag("~message")]
    | Annotated[FunctionCall, Tag("~function_call")]
    | Annotated[FunctionCallOutput, Tag("~function_call_output")]
    | Annotated[Reasoning, Tag("~reasoning")]
    | Annotated[CustomToolCall, Tag("~custom_tool_call")]
    | Annotated[CustomToolCallOutput, Tag("~custom_tool_call_output")]
    | Annotated[hosted_items.WebSearchCall, Tag("~web_search_call")]
    | Annotated[hosted_items.CodeInterpreterCall, Tag("~code_interpreter_call")]
    | Annotated[hosted_items.McpCall, Tag("~mcp_call")]
    | Annotated[hosted_items.McpListTools, Tag("~mcp_list_tools")]
    | Annotated[hosted_items.McpApprovalRequest, Tag("~mcp_approval_request")]
    | Annotated[hosted_items.McpApprovalResponse, Tag("~mcp_approval_response")]
    | Annotated[hosted_items.LocalShellCall, Tag("~local_shell_call")]
    | Annotated[hosted_items.LocalShellCallOutput, Tag("~local_shell_call_output")]
    | Annotated[hosted_items.ShellCall, Tag("~shell_call")]
    | Annotated[hosted_items.ShellCallOutput, Tag("~shell_call_output")]
    | Annotated[hosted_items.ApplyPatchCall, Tag("~apply_patch_call")]
    | Annotated[hosted_items.ApplyPatchCallOutput, Tag("~apply_patch_call_output")],
    by_type(
        *(kind for kind in honoured("input[].type=") if kind != "item_reference"),
        untyped="message",
    ),
]


class ItemReference(Sent):
    """Stands for an item that was given before. Clients may leave out the type."""

    type: Literal["item_reference"] | None = None
    id: Named


def _referred_or_said(value: Any) -> str:
    named = value.get("type") if isinstance(value, dict) else ""
    refers = named == "item_reference" or (named is None and "id" in value and "role" not in value)
    return "~item_reference" if refers else "~item"


SentItem = Annotated[
    Annotated[ItemReference, Tag("~item_reference")] | Annotated[InputItem, Tag("~item")],
    Discriminator(_referred_or_said),
]
"""What may stand in a request's input."""

# --- what the server gives -------------------------------------------------------------------

Status = Literal["in_progress", "completed", "incomplete"]
Phase = Literal["commentary", "final_answer"]


@dataclass(frozen=True)
class TopLogprob:
    token: str
    logprob: float
    bytes: tuple[int, ...]


@dataclass(frozen=True)
class TokenLogprob:
    """`bytes` say what `token` may not: a token need not be whole characters."""

    token: str
    logprob: float
    bytes: tuple[int, ...]
    top_logprobs: tuple[TopLogprob, ...] = ()


@dataclass(frozen=True)
class OutputText:
    text: str = ""
    annotations: tuple[()] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    type: Literal["output_text"] = "output_text"


@dataclass(frozen=True)
class OutputReasoningText:
    text: str = ""
    type: Literal["reasoning_text"] = "reasoning_text"


@dataclass(frozen=True)
class OutputMessage:
    id: str
    phase: Phase
    status: Status = "in_progress"
    content: tuple[OutputText, ...] = ()
    role: Literal["assistant"] = "assistant"
    type: Literal["message"] = "message"


@dataclass(frozen=True)
class OutputReasoning:
    id: str
    status: Status = "in_progress"
    content: tuple[OutputReasoningText, ...] = ()
    summary: tuple[()] = ()
    type: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True)
class OutputSealedReasoning(OutputReasoning):
    """With what the client is to carry. The specification takes no null in its place."""

    encrypted_content: str = ""


def sealed(item: OutputReasoning, content: str | None) -> OutputReasoning:
    if content is None:
        return item
    return OutputSealedReasoning(
        item.id, item.status, item.content, item.summary, encrypted_content=content
    )


@dataclass(frozen=True)
class OutputFunctionCall:
    id: str
    call_id: str
    name: str
    arguments: str = ""
    status: Status = "in_progress"
    type: Literal["function_call"] = "function_call"


@dataclass(frozen=True)
class OutputNamespacedCall(OutputFunctionCall):
    """A call of a function that stands in a namespace: no other call has the key."""

    namespace: str = ""


@dataclass(frozen=True)
class OutputCustomCall:
    id: str
    call_id: str
    name: str
    input: str = ""
    status: Status = "in_progress"
    type: Literal["custom_tool_call"] = "custom_tool_call"


@dataclass(frozen=True)
class OutputNamespacedCustomCall(OutputCustomCall):
    namespace: str = ""


OutputItem = OutputMessage | OutputReasoning | OutputFunctionCall | OutputCustomCall
OutputPart = OutputText | OutputReasoningText
