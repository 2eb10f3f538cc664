"""The API's output items: what the server gives, as frozen values spelled as the API spells them.

Like all values that are written down they have no slots: orjson takes 8 times as long over those.
"""

from __future__ import annotations

from typing import Literal

from trt_responses.frozen import dataclass

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
class OutputSummaryText:
    text: str = ""
    type: Literal["summary_text"] = "summary_text"


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


@dataclass(frozen=True)
class CodeLogs:
    """What code wrote, its last value or its traceback among it."""

    logs: str
    type: Literal["logs"] = "logs"


CodeStatus = Literal["in_progress", "interpreting", "completed", "incomplete", "failed"]


@dataclass(frozen=True)
class OutputCodeCall:
    """Code that the model had run here. A client that did not include `outputs` gets None."""

    id: str
    container_id: str
    code: str = ""
    outputs: tuple[CodeLogs, ...] | None = ()
    status: CodeStatus = "in_progress"
    type: Literal["code_interpreter_call"] = "code_interpreter_call"


@dataclass(frozen=True)
class OutputCompaction:
    """What stands for a conversation's older messages. `created_by` says whether a summary is in
    it or an extract."""

    id: str
    encrypted_content: str
    created_by: Literal["summary", "extract"]
    type: Literal["compaction"] = "compaction"


OutputItem = (
    OutputMessage
    | OutputReasoning
    | OutputFunctionCall
    | OutputCustomCall
    | OutputCodeCall
    | OutputCompaction
)
OutputPart = OutputText | OutputReasoningText
