"""The stream events of calls of shells, of code, of custom and of MCP tools, and what each
changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeVar

from trt_responses.features.tool_items.output import (
    OutputCodeCall,
    OutputContainerShellCall,
    OutputCustomCall,
    OutputMcpCall,
    OutputShellCall,
    OutputShellResult,
    ShellOutput,
    ShellText,
)
from trt_responses.frozen import dataclass, replace
from trt_responses.wire.events import FolderDelta, FolderEvent, OfItem
from trt_responses.wire.output import OutputHostedCall, OutputItem

T = TypeVar("T")


def _of(kind: type[T], item: OutputItem) -> T:
    """The item, which its event says is of this kind."""
    if not isinstance(item, kind):
        raise TypeError(f"a {item.type} is no {kind.__name__}")
    return item


def _shell_call(item: OutputItem) -> OutputShellCall | OutputContainerShellCall:
    return item if isinstance(item, OutputContainerShellCall) else _of(OutputShellCall, item)


def _with_command(item: OutputItem, index: int, command: str) -> OutputItem:
    call = _shell_call(item)
    before = call.action.commands
    commands = (*before[:index], command, *before[index + 1 :])
    return replace(call, action=replace(call.action, commands=commands))


@dataclass(frozen=True)
class HostedStep(OfItem, FolderEvent):
    """How far something has come that the server runs: the last word of `type` says it."""

    type: str

    def changed(self, item: OutputItem) -> OutputItem:
        """The item with that word as its status, where it has one."""
        if isinstance(item, OutputHostedCall):
            return replace(item, status=self.type.rpartition(".")[2])  # type: ignore[type-var]  # each is a dataclass
        return item


def step(name: str) -> Callable[[str, int], HostedStep]:
    """Makes the step of an item with this type."""
    return partial(HostedStep, type=name)


@dataclass(frozen=True)
class ShellCommandAdded(FolderEvent):
    """A command of a shell's call begins."""

    output_index: int
    command_index: int
    command: str
    type: Literal["response.shell_call_command.added"] = "response.shell_call_command.added"

    def changed(self, item: OutputItem) -> OutputItem:
        return _with_command(item, self.command_index, self.command)


@dataclass(frozen=True)
class ShellCommandDelta(FolderEvent):
    """A piece of a command."""

    output_index: int
    command_index: int
    delta: str
    type: Literal["response.shell_call_command.delta"] = "response.shell_call_command.delta"

    def changed(self, item: OutputItem) -> OutputItem:
        begun = _shell_call(item).action.commands[self.command_index]
        return _with_command(item, self.command_index, begun + self.delta)


@dataclass(frozen=True)
class ShellCommandDone(FolderEvent):
    """A whole command."""

    output_index: int
    command_index: int
    command: str
    type: Literal["response.shell_call_command.done"] = "response.shell_call_command.done"

    def changed(self, item: OutputItem) -> OutputItem:
        return _with_command(item, self.command_index, self.command)


@dataclass(frozen=True)
class ShellOutputDelta(OfItem, FolderEvent):
    """A piece of a command's output; how its command has ended comes with the whole."""

    command_index: int
    delta: ShellText
    type: Literal["response.shell_call_output_content.delta"] = (
        "response.shell_call_output_content.delta"
    )


@dataclass(frozen=True)
class ShellOutputDone(OfItem, FolderEvent):
    """The whole outputs of a shell's commands."""

    command_index: int
    output: tuple[ShellOutput, ...]
    type: Literal["response.shell_call_output_content.done"] = (
        "response.shell_call_output_content.done"
    )

    def changed(self, item: OutputItem) -> OutputItem:
        result = _of(OutputShellResult, item)
        return replace(result, output=(*result.output, *self.output))


@dataclass(frozen=True)
class CodeDelta(FolderDelta):
    """A piece of code that is to run here."""

    type: Literal["response.code_interpreter_call_code.delta"] = (
        "response.code_interpreter_call_code.delta"
    )

    def changed(self, item: OutputItem) -> OutputItem:
        call = _of(OutputCodeCall, item)
        return replace(call, code=call.code + self.delta)


@dataclass(frozen=True)
class CodeDone(OfItem, FolderEvent):
    """The whole code that is to run here."""

    code: str
    type: Literal["response.code_interpreter_call_code.done"] = (
        "response.code_interpreter_call_code.done"
    )

    def changed(self, item: OutputItem) -> OutputItem:
        return replace(_of(OutputCodeCall, item), code=self.code)


@dataclass(frozen=True)
class McpArgumentsDelta(FolderDelta):
    """A piece of the arguments of an MCP call."""

    type: Literal["response.mcp_call_arguments.delta"] = "response.mcp_call_arguments.delta"

    def changed(self, item: OutputItem) -> OutputItem:
        call = _of(OutputMcpCall, item)
        return replace(call, arguments=call.arguments + self.delta)


@dataclass(frozen=True)
class McpArgumentsDone(OfItem, FolderEvent):
    """The whole arguments of an MCP call."""

    arguments: str
    type: Literal["response.mcp_call_arguments.done"] = "response.mcp_call_arguments.done"

    def changed(self, item: OutputItem) -> OutputItem:
        return replace(_of(OutputMcpCall, item), arguments=self.arguments)


@dataclass(frozen=True)
class CustomInputDelta(FolderDelta):
    """A piece of a custom tool's input."""

    type: Literal["response.custom_tool_call_input.delta"] = "response.custom_tool_call_input.delta"

    def changed(self, item: OutputItem) -> OutputItem:
        call = _of(OutputCustomCall, item)
        return replace(call, input=call.input + self.delta)


@dataclass(frozen=True)
class CustomInputDone(OfItem, FolderEvent):
    """The whole input of a custom tool."""

    input: str
    type: Literal["response.custom_tool_call_input.done"] = "response.custom_tool_call_input.done"

    def changed(self, item: OutputItem) -> OutputItem:
        return replace(_of(OutputCustomCall, item), input=self.input)
