"""Items of tools that others ran: a client brings them back as the history of a conversation.

Only what is shown to the model is read; other keys are kept as they came.
"""

from __future__ import annotations

from typing import Any, Literal

from trt_responses.wire.base import Named, Sent


class Past(Sent):
    id: str | None = None


class WebSearchCall(Past):
    type: Literal["web_search_call"]
    action: dict[str, Any] | None = None
    status: str | None = None


class CodeInterpreterCall(Past):
    type: Literal["code_interpreter_call"]
    code: str | None = None
    outputs: list[dict[str, Any]] | None = None
    status: str | None = None


class McpCall(Past):
    type: Literal["mcp_call"]
    server_label: Named
    name: Named
    arguments: str
    output: str | None = None
    error: Any = None
    status: str | None = None


class McpListTools(Past):
    type: Literal["mcp_list_tools"]
    server_label: Named
    tools: list[dict[str, Any]]
    error: Any = None


class McpApprovalRequest(Past):
    type: Literal["mcp_approval_request"]
    server_label: Named
    name: Named
    arguments: str


class McpApprovalResponse(Past):
    type: Literal["mcp_approval_response"]
    approval_request_id: Named
    approve: bool
    reason: str | None = None


class LocalShellCall(Past):
    type: Literal["local_shell_call"]
    call_id: Named
    action: dict[str, Any]
    status: str | None = None


class LocalShellCallOutput(Past):
    """Names its call by `id`, as the API has it; some clients send a `call_id` too."""

    type: Literal["local_shell_call_output"]
    output: str
    call_id: str | None = None
    status: str | None = None


class ShellCall(Past):
    type: Literal["shell_call"]
    call_id: Named
    action: dict[str, Any]
    status: str | None = None


class ShellCallOutput(Past):
    type: Literal["shell_call_output"]
    call_id: Named
    output: list[dict[str, Any]]
    status: str | None = None


class ApplyPatchCall(Past):
    type: Literal["apply_patch_call"]
    call_id: Named
    operation: dict[str, Any]
    status: str | None = None


class ApplyPatchCallOutput(Past):
    type: Literal["apply_patch_call_output"]
    call_id: Named
    output: str | None = None
    status: str | None = None


PastItem = (
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
