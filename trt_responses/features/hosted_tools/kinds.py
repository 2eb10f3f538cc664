"""The kinds of calls that run here: the item and the events of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trt_responses.features.hosted_tools.hosted_calls import ROWS, HostedCall, Outcome, Row
from trt_responses.features.tool_items import events as te
from trt_responses.features.tool_items import output as to
from trt_responses.frozen import replace
from trt_responses.log.machine import Machine
from trt_responses.wire import events as e
from trt_responses.wire import output as o

if TYPE_CHECKING:
    from orjson import Fragment

NOT_RUN: Mapping[str, Any] = {"type": "exit", "exit_code": 126}
"""The outcome of a command that could not be run, as shells say it."""


def _code_call(call: HostedCall, code: str, outcome: Outcome) -> to.OutputCodeCall:
    outputs: tuple[to.CodeLogs | to.CodeImage, ...] | None = ()
    if outcome.status != "in_progress":
        outputs = (to.CodeLogs(outcome.text),) if outcome.text else ()
        outputs += tuple(to.CodeImage(url) for url in outcome.details.get("images", ()))
        if not call.runner.shows_outputs:
            outputs = None
    container_id = call.runner.facts["container_id"]
    return to.OutputCodeCall(call.id, container_id, code, outputs, outcome.status)


def _web_search_call(call: HostedCall, _: str, outcome: Outcome) -> to.OutputWebSearchCall:
    """A web search, with its sources where the client requests them and there are some."""
    action = dict({**call.described, **outcome.details}["action"])
    sources = action.pop("sources", None)
    if sources is not None and call.runner.shows_outputs and outcome.status != "in_progress":
        action["sources"] = sources
    if call.runner.shows_text and outcome.text is not None:
        action["output"] = outcome.text
    return to.OutputWebSearchCall(call.id, action, outcome.status)


def _shell_call(call: HostedCall, _: str, outcome: Outcome) -> to.OutputContainerShellCall:
    """A call of a shell, whose commands come in events. The API has no status for one that failed:
    its output says so."""
    environment = to.InContainer(call.runner.facts["container_id"])
    if outcome.status == "in_progress":
        return to.OutputContainerShellCall(call.id, call.call_id, environment)
    status: o.Status = "incomplete" if outcome.status == "incomplete" else "completed"
    action = to.ShellAction(**call.described)
    return to.OutputContainerShellCall(call.id, call.call_id, environment, action, status)


def _commands(call: HostedCall, _: str) -> tuple[e.Event, ...]:
    events: list[e.Event] = []
    for number, command in enumerate(call.described.get("commands", ())):
        events += (
            te.ShellCommandAdded(call.index, number, ""),
            te.ShellCommandDelta(call.index, number, command),
            te.ShellCommandDone(call.index, number, command),
        )
    return tuple(events)


def _shell_result(
    call: HostedCall, item_id: str, index: int, outcome: Outcome
) -> tuple[e.Event, ...]:
    """The outputs of a shell. A command that could not be run gives its reason, and no exit code of
    its own."""
    fields = {"stdout": "", "stderr": outcome.text or "", "outcome": NOT_RUN, **outcome.details}
    output = to.ShellOutput(**fields)
    empty = to.OutputShellResult(item_id, call.call_id)
    return (
        e.OutputItemAdded(index, empty),
        te.ShellOutputDelta(item_id, index, 0, to.ShellText(output.stdout, output.stderr)),
        te.ShellOutputDone(item_id, index, 0, (output,)),
        e.OutputItemDone(index, replace(empty, output=(output,), status="completed")),
    )


def _mcp_call(call: HostedCall, arguments: str, outcome: Outcome) -> to.OutputMcpCall:
    """A call of an MCP tool. An error, which the details hold, takes the place of the output."""
    fields = {"output": outcome.text, **outcome.details}
    if fields.get("error") is not None:
        fields["output"] = None
    facts = call.runner.facts
    label, name, request_id = facts["server_label"], facts["name"], facts.get("approval_request_id")
    return to.OutputMcpCall(
        call.id,
        label,
        name,
        arguments,
        approval_request_id=request_id,
        status=outcome.status,
        **fields,
    )


def _mcp_request(call: HostedCall, arguments: str, outcome: Outcome) -> to.OutputMcpApprovalRequest:
    label, name = call.runner.facts["server_label"], call.runner.facts["name"]
    return to.OutputMcpApprovalRequest(call.id, label, name, arguments)


KINDS: Mapping[str, Row] = {
    "code_interpreter": Row(
        to.OutputCodeCall,
        "ci",
        _code_call,
        delta=te.CodeDelta,
        begun=("response.code_interpreter_call.in_progress",),
        whole=lambda call, text: (te.CodeDone(call.id, call.index, text),),
        runs=("response.code_interpreter_call.interpreting",),
        ends={"completed": "response.code_interpreter_call.completed"},
    ),
    "shell": Row(
        to.OutputContainerShellCall,
        "sh",
        _shell_call,
        whole=_commands,
        result=_shell_result,
        empty=b"{}",
    ),
    "web_search": Row(
        to.OutputWebSearchCall,
        "ws",
        _web_search_call,
        begun=("response.web_search_call.in_progress",),
        runs=("response.web_search_call.searching",),
        ends={"completed": "response.web_search_call.completed"},
        empty=b"{}",
    ),
    "mcp": Row(
        to.OutputMcpCall,
        "mcp",
        _mcp_call,
        delta=te.McpArgumentsDelta,
        begun=("response.mcp_call.in_progress",),
        whole=lambda call, text: (te.McpArgumentsDone(call.id, call.index, text),),
        ends={
            "completed": "response.mcp_call.completed",
            "failed": "response.mcp_call.failed",
        },
        empty=b"{}",
    ),
    "mcp_approval": Row(
        to.OutputMcpApprovalRequest,
        "mcpr",
        _mcp_request,
        empty=b"{}",
        signed=True,
        if_cut="mcp",
    ),
}
"""The rows by the kind that a `Runner` names."""
ROWS.update(KINDS)


def tell_listing(
    machine: Machine, label: str, tools: tuple[Mapping[str, Any], ...] | Fragment, error: str | None
) -> None:
    """Tell what an MCP server offers, or why that is not known."""
    empty = to.OutputMcpListTools(machine.mint("mcpl"), label)
    steps = ("in_progress", "completed" if error is None else "failed")
    events = [te.step(f"response.mcp_list_tools.{step}") for step in steps]
    machine.tell(empty, events, replace(empty, tools=tools, error=error))
