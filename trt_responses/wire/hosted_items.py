"""Items of hosted tools, which others ran: a client brings them back as a conversation's history.

Only what is shown to the model is read; other keys are kept as they came.
"""

from __future__ import annotations

from typing import Any, Literal

from trt_responses.wire.base import ClientObject, Label, ListOf, NonEmpty


class HostedObject(ClientObject):
    """An item of a hosted tool."""

    id: str | None = None


class WebSearchCall(HostedObject):
    type: Literal["web_search_call"]
    action: dict[str, Any] | None = None
    status: str | None = None


class CodeInterpreterCall(HostedObject):
    type: Literal["code_interpreter_call"]
    code: str | None = None
    outputs: ListOf[dict[str, Any]] | None = None
    status: str | None = None


class McpCall(HostedObject):
    type: Literal["mcp_call"]
    server_label: Label
    name: Label
    arguments: str
    output: str | None = None
    error: Any = None
    approval_request_id: str | None = None
    status: str | None = None


class McpListTools(HostedObject):
    type: Literal["mcp_list_tools"]
    server_label: Label
    tools: ListOf[dict[str, Any]]
    error: Any = None


class McpApprovalRequest(HostedObject):
    type: Literal["mcp_approval_request"]
    server_label: Label
    name: Label
    arguments: str


class McpApprovalResponse(HostedObject):
    type: Literal["mcp_approval_response"]
    approval_request_id: NonEmpty
    approve: bool
    reason: str | None = None


class LocalShellCall(HostedObject):
    type: Literal["local_shell_call"]
    call_id: NonEmpty
    action: dict[str, Any]
    status: str | None = None


class LocalShellCallOutput(HostedObject):
    """Names its call by `id`, as the API has it; some clients send a `call_id` too."""

    type: Literal["local_shell_call_output"]
    output: str
    call_id: str | None = None
    status: str | None = None


class ShellCall(HostedObject):
    type: Literal["shell_call"]
    call_id: NonEmpty
    action: dict[str, Any]
    environment: dict[str, Any] | None = None
    status: str | None = None


class ShellCallOutput(HostedObject):
    type: Literal["shell_call_output"]
    call_id: NonEmpty
    output: ListOf[dict[str, Any]]
    status: str | None = None


class ApplyPatchCall(HostedObject):
    type: Literal["apply_patch_call"]
    call_id: NonEmpty
    operation: dict[str, Any]
    status: str | None = None


class ApplyPatchCallOutput(HostedObject):
    type: Literal["apply_patch_call_output"]
    call_id: NonEmpty
    output: str | None = None
    status: str | None = None


HostedItem = (
    WebSearchCall
    | CodeInterpreterCall
    | McpCall
    | McpListTools
    | McpApprovalRequest
    | McpApprovalResponse
    | LocalShellCall
    | LocalShellCallOutput
    | ShellCall
    | ShellCallOutput
    | ApplyPatchCall
    | ApplyPatchCallOutput
)
