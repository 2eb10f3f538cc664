"""Items of tools' calls that others ran: a client brings them back as a conversation's history.

Each says what the model reads: a call in the functions' namespace, under its tool's name, and what
it gave as the answer of that name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import orjson

from trt_responses.errors import InvalidRequest
from trt_responses.features.tool_items.output import arguments_of, wrapped
from trt_responses.prompt.conversation import joined
from trt_responses.tools.session import function_name
from trt_responses.wire.base import Label, ListOf, NonEmpty
from trt_responses.wire.items import TextOrParts
from trt_responses.wire.past_calls import NOT_KEPT, CallText, PastCall, PlainPastCall, canonical
from trt_responses.wire.tools import SEPARATOR

Texts = tuple[str, ...]


class WebSearchCall(PastCall):
    """A search that the server or another one ran."""

    prefix = "ws"
    type: Literal["web_search_call"]
    action: dict[str, Any] | None = None
    status: str | None = None

    def text(self) -> CallText:
        action = dict(self.action or {})
        output = action.pop("output", None)
        text = output if output and isinstance(output, str) else NOT_KEPT
        return CallText("web_search", _json(action), text)

    @staticmethod
    def digested(item: Any) -> Texts:
        return ("web_search_call", item.id or "", _search(item.action or {}))

    @property
    def ran_here(self) -> bool:
        return True


class CodeInterpreterCall(PastCall):
    """Code that the server or another one ran."""

    prefix = "ci"
    type: Literal["code_interpreter_call"]
    code: str | None = None
    outputs: ListOf[dict[str, Any]] | None = None
    status: str | None = None

    def text(self) -> CallText:
        outputs = NOT_KEPT if self.outputs is None else _logs(self.outputs)
        return CallText("code_interpreter", _json({"code": self.code or ""}), outputs)

    @staticmethod
    def digested(item: Any) -> Texts:
        return ("code_interpreter_call", item.id or "", item.code or "")

    @property
    def ran_here(self) -> bool:
        return True


class McpCall(PastCall):
    """A call of an MCP server's tool."""

    prefix = "mcp"
    type: Literal["mcp_call"]
    server_label: Label
    name: Label
    arguments: str
    output: str | None = None
    error: Any = None
    approval_request_id: str | None = None
    status: str | None = None

    def text(self) -> CallText:
        answer = NOT_KEPT if self.output is None else self.output
        if self.error is not None:
            answer = f"Error: {_text(self.error)}"
        return CallText(function_name(self.server_label, self.name), self.arguments, answer)

    def among(self, calls: Collection[str], place: str) -> CallText:
        text, request_id = self.text(), self.approval_request_id
        return CallText(result=text.result, call_id=request_id) if request_id in calls else text

    @staticmethod
    def digested(item: Any) -> Texts:
        return ("mcp_call", item.id or "", canonical(item.arguments))

    @property
    def approved_by(self) -> str | None:
        return self.approval_request_id


class McpListTools(PastCall):
    """The tools of an MCP server, as they were listed."""

    prefix = "mcpl"
    type: Literal["mcp_list_tools"]
    server_label: Label
    tools: ListOf[dict[str, Any]]
    error: Any = None

    def text(self) -> CallText:
        names = [str(tool.get("name", "")) for tool in self.tools]
        answer = _json(names) if self.error is None else f"Error: {_text(self.error)}"
        return CallText(f"{self.server_label}.list_tools", "{}", answer)


class McpApprovalRequest(PastCall):
    """A call that waits for the client's approval."""

    prefix = "mcpr"
    type: Literal["mcp_approval_request"]
    server_label: Label
    name: Label
    arguments: str

    def text(self) -> CallText:
        name = function_name(self.server_label, self.name)
        return CallText(name, self.arguments, None, self.id)

    @staticmethod
    def digested(item: Any) -> Texts:
        named = (item.id or "", item.server_label, item.name)
        return ("mcp_approval_request", *named, canonical(item.arguments))


class McpApprovalResponse(PastCall):
    """The client's answer to such a request."""

    prefix = "mcpa"
    type: Literal["mcp_approval_response"]
    approval_request_id: NonEmpty
    approve: bool
    reason: str | None = None

    def text(self) -> CallText:
        verdict = "Approved." if self.approve else "Not approved."
        reason = f" {self.reason}" if self.reason else ""
        return CallText(None, None, verdict + reason, self.approval_request_id)

    def among(self, calls: Collection[str], place: str) -> CallText:
        if (request_id := self.approval_request_id) in calls:
            return self.text()
        raise InvalidRequest(
            f"No 'mcp_approval_request' with the id {request_id[:100]!r} stands before this "
            "approval: send that item too, or the previous_response_id of the response that made "
            "it.",
            param=f"{place}.approval_request_id",
            code="unknown_call_id",
        )

    @property
    def approved(self) -> str | None:
        return self.approval_request_id if self.approve else None


class LocalShellCall(PastCall):
    """A command that a client's shell ran."""

    prefix = "lsh"
    type: Literal["local_shell_call"]
    call_id: NonEmpty
    action: dict[str, Any]
    status: str | None = None

    def text(self) -> CallText:
        return CallText("local_shell", arguments_of(self.action), None, self.call_id)

    @staticmethod
    def digested(item: Any) -> Texts:
        return (item.type, item.call_id, _action(item.action))


class LocalShellCallOutput(PastCall):
    """Names its call by `id`, as the API has it; some clients send a `call_id` too."""

    prefix = "lsho"
    type: Literal["local_shell_call_output"]
    output: str
    call_id: str | None = None
    status: str | None = None

    def text(self) -> CallText:
        return CallText(None, None, self.output, self.call_id or self.id or "")


class ShellCall(PastCall):
    """Commands that a shell ran, here or at the client."""

    prefix = "sh"
    type: Literal["shell_call"]
    call_id: NonEmpty
    action: dict[str, Any]
    environment: dict[str, Any] | None = None
    status: str | None = None

    def text(self) -> CallText:
        return CallText("shell", arguments_of(self.action), None, self.call_id)

    @staticmethod
    def digested(item: Any) -> Texts:
        return (item.type, item.call_id, _action(item.action))

    @property
    def ran_here(self) -> bool:
        return (self.environment or {}).get("type") == "container_reference"

    @property
    def inner_call(self) -> str | None:
        return self.call_id


class ShellCallOutput(PastCall):
    """The outputs of such commands."""

    prefix = "sho"
    type: Literal["shell_call_output"]
    call_id: NonEmpty
    output: ListOf[dict[str, Any]]
    status: str | None = None

    def text(self) -> CallText:
        return CallText(None, None, "\n".join(map(_ran, self.output)), self.call_id)

    @property
    def answered_call(self) -> str | None:
        return self.call_id


class ApplyPatchCall(PastCall):
    """A change of a file that the client made."""

    prefix = "apc"
    type: Literal["apply_patch_call"]
    call_id: NonEmpty
    operation: dict[str, Any]
    status: str | None = None

    def text(self) -> CallText:
        return CallText("apply_patch", arguments_of(self.operation), None, self.call_id)

    @staticmethod
    def digested(item: Any) -> Texts:
        return (item.type, item.call_id, _action(item.operation))


class ApplyPatchCallOutput(PastCall):
    """The outcome of such a change."""

    prefix = "apco"
    type: Literal["apply_patch_call_output"]
    call_id: NonEmpty
    output: str | None = None
    status: str | None = None

    def text(self) -> CallText:
        lines = ["failed"] if self.status == "failed" else []
        lines += [self.output] if self.output else []
        return CallText(None, None, "\n".join(lines) or "completed", self.call_id)


class CustomToolCall(PlainPastCall):
    """A call of a client's custom tool: its input is a text."""

    prefix = "ctc"
    type: Literal["custom_tool_call"]
    call_id: NonEmpty
    name: NonEmpty
    input: str
    namespace: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None

    def text(self) -> CallText:
        space = "" if self.namespace is None else f"{self.namespace}{SEPARATOR}"
        called = f"{space}{self.name}", wrapped(self.input), None, self.call_id
        return CallText(*called, as_sent=True)

    @staticmethod
    def digested(item: Any) -> Texts:
        return ("custom_tool_call", item.call_id, item.name, item.input)


class CustomToolCallOutput(PlainPastCall):
    """What a client's custom tool gave."""

    prefix = "ctco"
    type: Literal["custom_tool_call_output"]
    call_id: str
    output: TextOrParts
    status: Literal["in_progress", "completed", "incomplete"] | None = None

    def text(self) -> CallText:
        return CallText(result=joined(self.output), call_id=self.call_id)


def _logs(outputs: Sequence[Mapping[str, Any]]) -> str:
    """What code wrote, a line each; what is no text is named."""
    lines = []
    for output in outputs:
        logs = output.get("logs")
        lines.append(logs if isinstance(logs, str) else f"[{output.get('type')}]")
    return "\n".join(filter(None, lines))


def _ran(output: Mapping[str, Any]) -> str:
    """The output of a command, and how it ended, unless that was well."""
    lines = [output[key] for key in ("stdout", "stderr") if isinstance(output.get(key), str)]
    outcome = output.get("outcome")
    match outcome:
        case {"type": "timeout"}:
            lines.append("[The command took too long and was ended.]")
        case {"exit_code": int(code)} if code:
            lines.append(f"[exit code {code}]")
    return "\n".join(line.removesuffix("\n") for line in lines if line)


def _text(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _action(action: Any) -> str:
    """An action or an operation, with its keys in order: clients' libraries reorder them."""
    written = arguments_of(action if isinstance(action, dict) else vars(action))
    return json.dumps(json.loads(written), sort_keys=True)


def _search(action: Mapping[str, Any]) -> str:
    """An action without what a client may not have been given, or has left out."""
    kept = {k: v for k, v in action.items() if k not in ("sources", "output") and v is not None}
    return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS).decode()


ITEMS: Mapping[str, type[PastCall]] = {
    "web_search_call": WebSearchCall,
    "code_interpreter_call": CodeInterpreterCall,
    "mcp_call": McpCall,
    "mcp_list_tools": McpListTools,
    "mcp_approval_request": McpApprovalRequest,
    "mcp_approval_response": McpApprovalResponse,
    "custom_tool_call": CustomToolCall,
    "custom_tool_call_output": CustomToolCallOutput,
    "local_shell_call": LocalShellCall,
    "local_shell_call_output": LocalShellCallOutput,
    "shell_call": ShellCall,
    "shell_call_output": ShellCallOutput,
    "apply_patch_call": ApplyPatchCall,
    "apply_patch_call_output": ApplyPatchCallOutput,
}
