"""The API's output items: what the server gives, as frozen values spelled as the API spells them.

Like all values that are written down they have no slots: orjson takes 8 times as long over those.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from trt_responses.frozen import dataclass

Status = Literal["in_progress", "completed", "incomplete"]
Phase = Literal["commentary", "final_answer"]


@dataclass(frozen=True)
class TopLogprob:
    """One of the likeliest tokens at a place."""

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


class Annotation:
    """What stands beside a text, of this kind or of one that a folder brings."""


@dataclass(frozen=True)
class UrlCitation(Annotation):
    """`text[start_index:end_index]`, in code points, is the link to where something stands."""

    start_index: int
    end_index: int
    url: str
    title: str
    type: Literal["url_citation"] = "url_citation"


@dataclass(frozen=True)
class OutputText:
    """The text of a message."""

    text: str = ""
    annotations: tuple[Annotation, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    type: Literal["output_text"] = "output_text"


@dataclass(frozen=True)
class OutputReasoningText:
    """The text of a thought."""

    text: str = ""
    type: Literal["reasoning_text"] = "reasoning_text"


@dataclass(frozen=True)
class OutputSummaryText:
    """The text of a thought's summary."""

    text: str = ""
    type: Literal["summary_text"] = "summary_text"


@dataclass(frozen=True)
class OutputMessage:
    """A message to the user."""

    id: str
    phase: Phase
    status: Status = "in_progress"
    content: tuple[OutputText, ...] = ()
    role: Literal["assistant"] = "assistant"
    type: Literal["message"] = "message"


@dataclass(frozen=True)
class OutputReasoning:
    """A thought, as its content or, for clients that show no other, as its summary."""

    id: str
    status: Status = "in_progress"
    content: tuple[OutputReasoningText, ...] = ()
    summary: tuple[OutputSummaryText, ...] = ()
    type: Literal["reasoning"] = "reasoning"

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content or self.summary)


@dataclass(frozen=True)
class OutputSealedReasoning(OutputReasoning):
    """With what the client is to carry. The specification takes no null in its place."""

    encrypted_content: str = ""


def sealed(item: OutputReasoning, content: str | None) -> OutputReasoning:
    """A thought that also carries this sealed content."""
    if content is None:
        return item
    return OutputSealedReasoning(
        item.id, item.status, item.content, item.summary, encrypted_content=content
    )


@dataclass(frozen=True)
class OutputFunctionCall:
    """A call of a client's function."""

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


class OutputActionCall:
    """A call of a tool that the API knows and the client runs, of a kind that a folder brings."""

    id: str
    call_id: str
    status: Status
    type: str

    @property
    def called(self) -> tuple[str, str | None]:
        """The tool's name, and its namespace."""
        return self.type.removesuffix("_call"), None

    def text(self) -> str:
        """The text that the model writes to make this call."""
        raise NotImplementedError


HostedStatus = Literal[
    "in_progress", "interpreting", "searching", "completed", "incomplete", "failed"
]


class OutputHostedCall:
    """What a call to a tool of the server's becomes, of a kind that a folder brings."""

    id: str
    status: HostedStatus
    type: str
    run_here: ClassVar[bool] = True
    """Whether the call is run here; else the client gets it, and answers it."""
    is_code: ClassVar[bool] = True
    """Whether its text is code, or the like; else it is a function's arguments."""
    channel: ClassVar[str] = "analysis"
    """The channel of a call that named none, and of its answer."""

    def text(self) -> str:
        """The text that the model writes to make this call."""
        raise NotImplementedError


class OutputBeside:
    """An item that stands beside the model's messages: none of those became one."""

    id: str
    type: str


OutputItem = (
    OutputMessage
    | OutputReasoning
    | OutputFunctionCall
    | OutputActionCall
    | OutputHostedCall
    | OutputBeside
)
OutputPart = OutputText | OutputReasoningText


def written(output: Iterable[OutputItem]) -> list[OutputItem]:
    """The items that messages of the model became: each has a message, in the same order."""
    return [item for item in output if not isinstance(item, OutputBeside)]
