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
    """A search that the server or another one ran."""

    type: Literal["web_search_call"]
    action: dict[str, Any] | None = None
    status: str | None = None


class CodeInterpreterCall(HostedObject):
    """Code that the server or another one ran."""

    type: Literal["code_interpreter_call"]
    code: str | None = None
    outputs: ListOf[dict[str, Any]] | None = None
    status: str | None = None


class McpCall(HostedObject):
    """A call of an MCP server's tool."""

    type: Literal["mcp_call"]
    server_label: Label
    name: Label
    arguments: str
    output: str | None = None
    error: Any = None
    approval_request_id: str | None = None
    status: str | None = None


class McpListTools(HostedObject):
    """The tools of an MCP server, as they were listed."""

    type: Literal["mcp_list_tools"]
    server_label: Label
    tools: ListOf[dict[str, Any]]
    error: Any = None


class McpApprovalRequest(HostedObject):
    """A call that waits for the client's approval."""

    type: Literal["mcp_approval_request"]
    server_label: Label
    name: Label
    arguments: str


class McpApprovalResponse(HostedObject):
    """The client's answer to such a request."""

    type: Literal["mcp_approval_response"]
    approval_request_id: NonEmpty
    approve: bool
    reason: str | None = None


class LocalShellCall(HostedObject):
    """A command that a client's shell ran."""

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
    """Commands that a shell ran, here or at the client."""

    type: Literal["shell_call"]
    call_id: NonEmpty
    action: dict[str, Any]
    environment: dict[str, Any] | None = None
    status: str | None = None


class ShellCallOutput(HostedObject):
    """The outputs of such commands."""

    type: Literal["shell_call_output"]
    call_id: NonEmpty
    output: ListOf[dict[str, Any]]
    status: str | None = None


class ApplyPatchCall(HostedObject):
    """A change of a file that the client made."""

    type: Literal["apply_patch_call"]
    call_id: NonEmpty
    operation: dict[str, Any]
    status: str | None = None


class ApplyPatchCallOutput(HostedObject):
    """The outcome of such a change."""

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
