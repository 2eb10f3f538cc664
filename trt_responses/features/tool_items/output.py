"""The output items of tools that the API knows: shells, patches, code, searches and MCP servers.

Like all values that are written down they have no slots: orjson takes 8 times as long over those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from trt_responses.frozen import dataclass
from trt_responses.wire.output import (
    Annotation,
    HostedStatus,
    OutputActionCall,
    OutputBeside,
    OutputHostedCall,
    Status,
)

if TYPE_CHECKING:
    from orjson import Fragment


def arguments_of(action: Mapping[str, Any]) -> str:
    """The arguments of an action or an operation as the model writes them."""
    present = {
        key: action[key]
        for key in sorted(action, key=lambda key: key != "type")
        if action[key] not in (None, {}) and (key, action[key]) != ("type", "exec")
    }
    return json.dumps(present, ensure_ascii=False)


def wrapped(text: str) -> str:
    """A custom tool's text, as the model writes it."""
    return f'{{"input": {json.dumps(text, ensure_ascii=False)}}}'


@dataclass(frozen=True)
class ContainerFileCitation(Annotation):
    """`text[start_index:end_index]`, in code points, names a file of a container. The span is empty
    for a file that the text does not name."""

    container_id: str
    file_id: str
    filename: str
    start_index: int
    end_index: int
    type: Literal["container_file_citation"] = "container_file_citation"


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
class OutputShellCall(OutputActionCall):
    """Commands that the client is to run."""

    id: str
    call_id: str
    action: ShellAction = ShellAction()
    status: Status = "in_progress"
    environment: OnClientsMachine = OnClientsMachine()
    type: Literal["shell_call"] = "shell_call"

    def text(self) -> str:
        return arguments_of(vars(self.action))


@dataclass(frozen=True)
class InContainer:
    """The place of commands that are run here: a container."""

    container_id: str
    type: Literal["container_reference"] = "container_reference"


@dataclass(frozen=True)
class OutputContainerShellCall(OutputHostedCall):
    """Commands that are run here, in a container. What they gave is an item of its own."""

    id: str
    call_id: str
    environment: InContainer
    action: ShellAction = ShellAction()
    status: Status = "in_progress"
    type: Literal["shell_call"] = "shell_call"

    def text(self) -> str:
        """The arguments of a command, for an item whose own text is not known any more."""
        return json.dumps({"cmd": ["bash", "-c", *self.action.commands]}, ensure_ascii=False)


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
class OutputShellResult(OutputBeside):
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
class OutputLocalShellCall(OutputActionCall):
    """One command that the client is to run."""

    id: str
    call_id: str
    action: LocalShellAction = LocalShellAction()
    status: Status = "in_progress"
    type: Literal["local_shell_call"] = "local_shell_call"

    def text(self) -> str:
        return arguments_of(vars(self.action))


@dataclass(frozen=True)
class OutputCustomCall(OutputActionCall):
    """A call of a client's custom tool."""

    id: str
    call_id: str
    name: str
    input: str = ""
    status: Status = "in_progress"
    type: Literal["custom_tool_call"] = "custom_tool_call"

    @property
    def called(self) -> tuple[str, str | None]:
        return self.name, None

    def text(self) -> str:
        return wrapped(self.input)


@dataclass(frozen=True)
class OutputNamespacedCustomCall(OutputCustomCall):
    """A call of a custom tool that stands in a namespace."""

    namespace: str = ""

    @property
    def called(self) -> tuple[str, str | None]:
        return self.name, self.namespace


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
class OutputPatchCall(OutputActionCall):
    """What the client is to do to a file. The API has no word for a call that was cut."""

    id: str
    call_id: str
    operation: PatchedFile | DeletedFile
    status: Literal["in_progress", "completed"] = "in_progress"
    type: Literal["apply_patch_call"] = "apply_patch_call"

    def text(self) -> str:
        return arguments_of(vars(self.operation))


@dataclass(frozen=True)
class CodeLogs:
    """What code wrote, its last value or its traceback among it."""

    logs: str
    type: Literal["logs"] = "logs"


@dataclass(frozen=True)
class CodeImage:
    """An image that code wrote, as a data URL."""

    url: str
    type: Literal["image"] = "image"


@dataclass(frozen=True)
class OutputCodeCall(OutputHostedCall):
    """Code that the model had run here. A client that did not include `outputs` gets None."""

    id: str
    container_id: str
    code: str = ""
    outputs: tuple[CodeLogs | CodeImage, ...] | None = ()
    status: HostedStatus = "in_progress"
    type: Literal["code_interpreter_call"] = "code_interpreter_call"

    def text(self) -> str:
        return self.code


@dataclass(frozen=True)
class OutputWebSearchCall(OutputHostedCall):
    """What the browser did: `action` is a search, a page that was opened, or a text looked for."""

    id: str
    action: Mapping[str, Any]
    status: HostedStatus = "in_progress"
    type: Literal["web_search_call"] = "web_search_call"

    def text(self) -> str:
        """The arguments of a search, from its action, for an item whose own text is not known any
        more."""
        action = self.action
        match action["type"]:
            case "search":
                return json.dumps({"query": action["query"]}, ensure_ascii=False)
            case "open_page":
                return json.dumps({"id": action["url"] or -1}, ensure_ascii=False)
            case _:
                return json.dumps({"pattern": action["pattern"]}, ensure_ascii=False)


@dataclass(frozen=True)
class OutputMcpCall(OutputHostedCall):
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
    is_code = False
    channel = "commentary"

    def text(self) -> str:
        return self.arguments


@dataclass(frozen=True)
class OutputMcpApprovalRequest(OutputHostedCall):
    """A call that is run when the client has approved it."""

    id: str
    server_label: str
    name: str
    arguments: str = ""
    type: Literal["mcp_approval_request"] = "mcp_approval_request"
    run_here = False
    is_code = False
    channel = "commentary"

    def text(self) -> str:
        return self.arguments


@dataclass(frozen=True)
class OutputMcpListTools(OutputBeside):
    """The tools of an MCP server; in words, why they could not be listed."""

    id: str
    server_label: str
    tools: tuple[Mapping[str, Any], ...] | Fragment = ()
    error: str | None = None
    type: Literal["mcp_list_tools"] = "mcp_list_tools"
