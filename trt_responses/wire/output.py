"""The API's output items: what the server gives, as frozen values spelled as the API spells them.

Like all values that are written down they have no slots: orjson takes 8 times as long over those.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Literal

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


@dataclass(frozen=True)
class UrlCitation:
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
    annotations: tuple[UrlCitation, ...] = ()
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


@dataclass(frozen=True)
class OutputCustomCall:
    """A call of a client's custom tool."""

    id: str
    call_id: str
    name: str
    input: str = ""
    status: Status = "in_progress"
    type: Literal["custom_tool_call"] = "custom_tool_call"


@dataclass(frozen=True)
class OutputNamespacedCustomCall(OutputCustomCall):
    """A call of a custom tool that stands in a namespace."""

    namespace: str = ""


@dataclass(frozen=True)
class OnClientsMachine:
    """The place of commands that the client runs."""

    type: Literal["local"] = "local"


@dataclass(frozen=True)
class ShellAction:
    """Commands for a shell, and what bounds them."""

    commands: tuple[str, ...] = ()
    timeout_ms: int | None = None
    max_output_length: int | None = None


@dataclass(frozen=True)
class OutputShellCall:
    """Commands that the client is to run."""

    id: str
    call_id: str
    action: ShellAction = ShellAction()
    status: Status = "in_progress"
    environment: OnClientsMachine = OnClientsMachine()
    type: Literal["shell_call"] = "shell_call"


@dataclass(frozen=True)
class InContainer:
    """The place of commands that are run here: a container."""

    container_id: str
    type: Literal["container_reference"] = "container_reference"


@dataclass(frozen=True)
class OutputContainerShellCall:
    """Commands that are run here, in a container. What they gave is an item of its own."""

    id: str
    call_id: str
    environment: InContainer
    action: ShellAction = ShellAction()
    status: Status = "in_progress"
    type: Literal["shell_call"] = "shell_call"


@dataclass(frozen=True)
class ShellText:
    """What a command wrote."""

    stdout: str
    stderr: str


@dataclass(frozen=True)
class ShellOutput(ShellText):
    """The same, and how the command ended."""

    outcome: Mapping[str, Any]


@dataclass(frozen=True)
class OutputShellResult:
    """What commands gave that were run here."""

    id: str
    call_id: str
    output: tuple[ShellOutput, ...] = ()
    max_output_length: int | None = None
    status: Status = "in_progress"
    type: Literal["shell_call_output"] = "shell_call_output"


@dataclass(frozen=True)
class LocalShellAction:
    """A command for the client's shell."""

    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_ms: int | None = None
    user: str | None = None
    working_directory: str | None = None
    type: Literal["exec"] = "exec"


@dataclass(frozen=True)
class OutputLocalShellCall:
    """One command that the client is to run."""

    id: str
    call_id: str
    action: LocalShellAction = LocalShellAction()
    status: Status = "in_progress"
    type: Literal["local_shell_call"] = "local_shell_call"


@dataclass(frozen=True)
class PatchedFile:
    """A file that is created or changed."""

    path: str
    diff: str
    type: Literal["create_file", "update_file"]


@dataclass(frozen=True)
class DeletedFile:
    """A file that is deleted."""

    path: str
    type: Literal["delete_file"] = "delete_file"


@dataclass(frozen=True)
class OutputPatchCall:
    """What the client is to do to a file. The API has no word for a call that was cut."""

    id: str
    call_id: str
    operation: PatchedFile | DeletedFile
    status: Literal["in_progress", "completed"] = "in_progress"
    type: Literal["apply_patch_call"] = "apply_patch_call"


@dataclass(frozen=True)
class OutputToolSearchCall:
    """A search for deferred tools, which the client is to make."""

    id: str
    call_id: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    status: Status = "in_progress"
    execution: Literal["client"] = "client"
    type: Literal["tool_search_call"] = "tool_search_call"


OutputActionCall = OutputShellCall | OutputLocalShellCall | OutputPatchCall | OutputToolSearchCall
"""A call of a tool that the API knows and the client runs."""


@dataclass(frozen=True)
class CodeLogs:
    """What code wrote, its last value or its traceback among it."""

    logs: str
    type: Literal["logs"] = "logs"


HostedStatus = Literal[
    "in_progress", "interpreting", "searching", "completed", "incomplete", "failed"
]


@dataclass(frozen=True)
class OutputCodeCall:
    """Code that the model had run here. A client that did not include `outputs` gets None."""

    id: str
    container_id: str
    code: str = ""
    outputs: tuple[CodeLogs, ...] | None = ()
    status: HostedStatus = "in_progress"
    type: Literal["code_interpreter_call"] = "code_interpreter_call"


@dataclass(frozen=True)
class OutputWebSearchCall:
    """What the browser did: `action` is a search, a page that was opened, or a text looked for."""

    id: str
    action: Mapping[str, Any]
    status: HostedStatus = "in_progress"
    type: Literal["web_search_call"] = "web_search_call"


@dataclass(frozen=True)
class OutputMcpCall:
    """A call of a tool of an MCP server. Of `output` and `error`, one is None."""

    id: str
    server_label: str
    name: str
    arguments: str = ""
    output: str | None = None
    error: Mapping[str, Any] | None = None
    approval_request_id: str | None = None
    """The request that the client has approved, of a call that had to wait for it."""
    status: HostedStatus = "in_progress"
    type: Literal["mcp_call"] = "mcp_call"


@dataclass(frozen=True)
class OutputMcpApprovalRequest:
    """A call that is run when the client has approved it."""

    id: str
    server_label: str
    name: str
    arguments: str = ""
    type: Literal["mcp_approval_request"] = "mcp_approval_request"


@dataclass(frozen=True)
class OutputCompaction:
    """What stands for a conversation's older messages. `created_by` says whether a summary is in
    it or an extract."""

    id: str
    encrypted_content: str
    created_by: Literal["summary", "extract"]
    type: Literal["compaction"] = "compaction"


@dataclass(frozen=True)
class OutputMcpListTools:
    """The tools of an MCP server; in words, why they could not be listed."""

    id: str
    server_label: str
    tools: tuple[Mapping[str, Any], ...] = ()
    error: str | None = None
    type: Literal["mcp_list_tools"] = "mcp_list_tools"


@dataclass(frozen=True)
class OutputHostedToolSearchCall:
    """A search for deferred tools that is made here. What it found is an item of its own."""

    id: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    status: HostedStatus = "in_progress"
    call_id: None = None
    execution: Literal["server"] = "server"
    type: Literal["tool_search_call"] = "tool_search_call"


@dataclass(frozen=True)
class OutputToolSearchResult:
    """The tools that such a search has found."""

    id: str
    tools: tuple[Mapping[str, Any], ...] = ()
    status: Status = "in_progress"
    call_id: None = None
    execution: Literal["server"] = "server"
    type: Literal["tool_search_output"] = "tool_search_output"


OutputHostedCall = (
    OutputCodeCall
    | OutputContainerShellCall
    | OutputWebSearchCall
    | OutputMcpCall
    | OutputMcpApprovalRequest
    | OutputHostedToolSearchCall
)
"""What a call to a tool of the server's becomes."""

OutputItem = (
    OutputMessage
    | OutputReasoning
    | OutputFunctionCall
    | OutputCustomCall
    | OutputActionCall
    | OutputHostedCall
    | OutputShellResult
    | OutputMcpListTools
    | OutputToolSearchResult
    | OutputCompaction
)
BESIDE = (OutputMcpListTools, OutputShellResult, OutputToolSearchResult, OutputCompaction)
"""Items that stand beside the model's messages: none of those became one."""
OutputPart = OutputText | OutputReasoningText


def written(output: Iterable[OutputItem]) -> list[OutputItem]:
    """The items that messages of the model became: each has a message, in the same order."""
    return [item for item in output if not isinstance(item, BESIDE)]


def action_text(item: OutputActionCall) -> str:
    """The text that the model writes to make this call."""
    if isinstance(item, OutputToolSearchCall):
        return json.dumps(item.arguments, ensure_ascii=False)
    action = item.operation if isinstance(item, OutputPatchCall) else item.action
    return arguments_of(vars(action))


def arguments_of(action: Mapping[str, Any]) -> str:
    """The arguments of an action or an operation as the model writes them."""
    present = {
        key: action[key]
        for key in sorted(action, key=lambda key: key != "type")
        if action[key] not in (None, {}) and (key, action[key]) != ("type", "exec")
    }
    return json.dumps(present, ensure_ascii=False)
