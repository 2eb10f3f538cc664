"""Calls that the server runs itself, as the client sees them: one row for each kind.

The events of a call, in their order: `added`, the steps `begun`, deltas of its text, what `whole`
gives; then the tool runs; then the step of its end, if that status has one, and `done`. A kind
without deltas waits for the whole text before `added`, so that its item is true from the start.
The tool loop decides when a call is run, and where.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from trt_responses.frozen import replace
from trt_responses.wire import events as e
from trt_responses.wire import output as o

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Item = Callable[["HostedCall", str, "Outcome"], o.OutputHostedCall]

NOTHING: Mapping[str, Any] = {}
NOT_RUN: Mapping[str, Any] = {"type": "exit", "exit_code": 126}
"""The outcome of a command that could not be run, as shells say it."""
NO_STEPS: Mapping[o.HostedStatus, e.StepName] = {}


class Runner(NamedTuple):
    """A tool that is run here, in the form in which the client sees its calls."""

    kind: str
    """The kind of call, which is a key of `ROWS`."""
    facts: Mapping[str, str] = NOTHING
    """The item's values before anything runs, by the item's own keys."""
    shows_outputs: bool = False
    """Whether the client has requested outputs that are null otherwise."""
    describe: Callable[[str], Mapping[str, Any]] | None = None
    """Makes the same of the text that the model wrote."""
    unwraps: str = ""
    """The member of the model's JSON that is the text of a call; empty: the JSON is."""


class Outcome(NamedTuple):
    """The outcome of a call."""

    status: o.HostedStatus = "in_progress"
    text: str | None = None
    """The text that the model was given; None where the call was broken off."""
    details: Mapping[str, Any] = NOTHING
    """More values of the item, by its own keys."""


class Row(NamedTuple):
    """What is particular to one kind of call."""

    prefix: str
    """The beginning of its items' ids."""
    item: Item
    """Makes the item, from the text that the model wrote and from the outcome."""
    text: Callable[[Any], str]
    """Gives the text that the model wrote, from an item in the log."""
    delta: Callable[[str, int, str], e.Delta] | None = None
    """Makes an event of a piece of text. None: the text is sent as a whole, before `added`."""
    begun: tuple[e.StepName, ...] = ()
    whole: Callable[[HostedCall, str], tuple[e.Event, ...]] = lambda *_: ()
    """Makes the events when the text is whole."""
    result: Callable[[HostedCall, str, int, Outcome], tuple[e.Event, ...]] | None = None
    """Makes the events of another item, with that id and index, for what the call gave."""
    runs: tuple[e.StepName, ...] = ()
    """The steps between the whole text and the tool's answer."""
    ends: Mapping[o.HostedStatus, e.StepName] = NO_STEPS
    empty: bytes = b""
    """The text of a call that was written without one."""
    run_here: bool = True
    """Whether the call is run here; else the client gets it, and answers it."""
    signed: bool = False
    """Whether its id vouches for its content when a client brings it back."""
    if_cut: str = ""
    """The kind that a call becomes whose text was cut; None: it keeps its kind."""
    channel: str = "analysis"
    """The channel of a call that named none, and of its answer."""


class HostedCall:
    """A call of one of the rows. Its item ends when the tool has answered."""

    def __init__(self, item_id: str, index: int, runner: Runner) -> None:
        self.id = item_id
        self.index = index
        self.runner = runner
        self.row = ROWS[runner.kind]
        self.empty = self.row.empty
        self.text = ""
        """The text that the model wrote, of a row that waits for it."""
        self.described = NOTHING

    def begin(self, text: str = "") -> tuple[e.Event, ...]:
        """The first events. The text is whole already, where the row waits for it."""
        if self.runner.describe is not None:
            self.described = self.runner.describe(text)
        self.text = text
        added = e.OutputItemAdded(self.index, self.row.item(self, text, Outcome()))
        return (added, *self._steps(self.row.begun))

    def sign(self, text: str, sign: Callable[[Sequence[str]], str]) -> None:
        """Put a signature of the call's content behind its id."""
        facts = self.runner.facts
        signed = (self.id, facts["server_label"], facts["name"], text)
        self.id = f"{self.id}.{sign(signed)}"

    def delta(self) -> e.Delta:
        assert self.row.delta is not None, "a call that waits for its text has no deltas"
        return self.row.delta(self.id, self.index, "")

    @property
    def call_id(self) -> str:
        """The id of the call, of a kind that has one besides its item's."""
        return f"call_{self.id.partition('_')[2]}"

    def end(self, item: o.OutputItem, status: o.Status) -> tuple[e.Event, ...]:
        """The events at the end of the text; at that of the item too, where it was cut or nothing
        runs here."""
        text = self.text_of(item)
        whole = self.row.whole(self, text)
        if status != "completed":
            return (*whole, self._done(text, Outcome("incomplete")))
        if not self.row.run_here:
            return (*whole, self._done(text, Outcome("completed")))
        return (*whole, *self._steps(self.row.runs))

    def answer(self, item: o.OutputItem, outcome: Outcome) -> tuple[e.Event, ...]:
        """The events at the end of the item: the tool's answer, or that it was broken off."""
        step = self.row.ends.get(outcome.status)
        ended = self._steps((step,) if step else ())
        return (*ended, self._done(self.text_of(item), outcome))

    def text_of(self, item: o.OutputItem) -> str:
        """The text that the model wrote, from an item in the log."""
        return self.text if self.row.delta is None else self.row.text(item)

    def _done(self, text: str, outcome: Outcome) -> e.OutputItemDone:
        return e.OutputItemDone(self.index, self.row.item(self, text, outcome))

    def _steps(self, names: tuple[e.StepName, ...]) -> tuple[e.Event, ...]:
        return tuple(e.HostedStep(self.id, self.index, name) for name in names)


def _code_call(call: HostedCall, code: str, outcome: Outcome) -> o.OutputCodeCall:
    outputs: tuple[o.CodeLogs, ...] | None = ()
    if outcome.status != "in_progress":
        outputs = (o.CodeLogs(outcome.text),) if outcome.text else ()
        if not call.runner.shows_outputs:
            outputs = None
    container_id = call.runner.facts["container_id"]
    return o.OutputCodeCall(call.id, container_id, code, outputs, outcome.status)


def _web_search_call(call: HostedCall, _: str, outcome: Outcome) -> o.OutputWebSearchCall:
    """A web search, with its sources where the client requests them and there are some."""
    action = dict({**call.described, **outcome.details}["action"])
    sources = action.pop("sources", None)
    if sources is not None and call.runner.shows_outputs and outcome.status != "in_progress":
        action["sources"] = sources
    return o.OutputWebSearchCall(call.id, action, outcome.status)


def _shell_call(call: HostedCall, _: str, outcome: Outcome) -> o.OutputContainerShellCall:
    """A call of a shell, whose commands come in events. The API has no status for one that failed:
    its output says so."""
    environment = o.InContainer(call.runner.facts["container_id"])
    if outcome.status == "in_progress":
        return o.OutputContainerShellCall(call.id, call.call_id, environment)
    status: o.Status = "incomplete" if outcome.status == "incomplete" else "completed"
    action = o.ShellAction(**call.described)
    return o.OutputContainerShellCall(call.id, call.call_id, environment, action, status)


def _commands(call: HostedCall, _: str) -> tuple[e.Event, ...]:
    events: list[e.Event] = []
    for number, command in enumerate(call.described.get("commands", ())):
        events += (
            e.ShellCommandAdded(call.index, number, ""),
            e.ShellCommandDelta(call.index, number, command),
            e.ShellCommandDone(call.index, number, command),
        )
    return tuple(events)


def _shell_result(
    call: HostedCall, item_id: str, index: int, outcome: Outcome
) -> tuple[e.Event, ...]:
    """The outputs of a shell. A command that could not be run gives its reason, and no exit code of
    its own."""
    fields = {"stdout": "", "stderr": outcome.text or "", "outcome": NOT_RUN, **outcome.details}
    output = o.ShellOutput(**fields)
    empty = o.OutputShellResult(item_id, call.call_id)
    return (
        e.OutputItemAdded(index, empty),
        e.ShellOutputDelta(item_id, index, 0, o.ShellText(output.stdout, output.stderr)),
        e.ShellOutputDone(item_id, index, 0, (output,)),
        e.OutputItemDone(index, replace(empty, output=(output,), status="completed")),
    )


def _command(item: o.OutputContainerShellCall) -> str:
    """The arguments of a command, for an item whose own text is not known any more."""
    return json.dumps({"cmd": ["bash", "-c", *item.action.commands]}, ensure_ascii=False)


def _searched(item: o.OutputWebSearchCall) -> str:
    """The arguments of a search, from its action, for an item whose own text is not known any
    more."""
    action = item.action
    match action["type"]:
        case "search":
            return json.dumps({"query": action["query"]}, ensure_ascii=False)
        case "open_page":
            return json.dumps({"id": action["url"] or -1}, ensure_ascii=False)
        case _:
            return json.dumps({"pattern": action["pattern"]}, ensure_ascii=False)


def _mcp_call(call: HostedCall, arguments: str, outcome: Outcome) -> o.OutputMcpCall:
    """A call of an MCP tool. An error, which the details hold, takes the place of the output."""
    fields = {"output": outcome.text, **outcome.details}
    if fields.get("error") is not None:
        fields["output"] = None
    facts = call.runner.facts
    label, name, request_id = facts["server_label"], facts["name"], facts.get("approval_request_id")
    return o.OutputMcpCall(
        call.id,
        label,
        name,
        arguments,
        approval_request_id=request_id,
        status=outcome.status,
        **fields,
    )


def _mcp_request(call: HostedCall, arguments: str, outcome: Outcome) -> o.OutputMcpApprovalRequest:
    label, name = call.runner.facts["server_label"], call.runner.facts["name"]
    return o.OutputMcpApprovalRequest(call.id, label, name, arguments)


ROWS: Mapping[str, Row] = {
    "code_interpreter": Row(
        "ci",
        _code_call,
        lambda item: item.code,
        delta=e.CodeDelta,
        begun=("response.code_interpreter_call.in_progress",),
        whole=lambda call, text: (e.CodeDone(call.id, call.index, text),),
        runs=("response.code_interpreter_call.interpreting",),
        ends={"completed": "response.code_interpreter_call.completed"},
    ),
    "shell": Row("sh", _shell_call, _command, whole=_commands, result=_shell_result, empty=b"{}"),
    "web_search": Row(
        "ws",
        _web_search_call,
        _searched,
        begun=("response.web_search_call.in_progress",),
        runs=("response.web_search_call.searching",),
        ends={"completed": "response.web_search_call.completed"},
        empty=b"{}",
    ),
    "mcp": Row(
        "mcp",
        _mcp_call,
        lambda item: item.arguments,
        delta=e.McpArgumentsDelta,
        begun=("response.mcp_call.in_progress",),
        whole=lambda call, text: (e.McpArgumentsDone(call.id, call.index, text),),
        ends={
            "completed": "response.mcp_call.completed",
            "failed": "response.mcp_call.failed",
        },
        empty=b"{}",
        channel="commentary",
    ),
    "mcp_approval": Row(
        "mcpr",
        _mcp_request,
        lambda item: item.arguments,
        empty=b"{}",
        run_here=False,
        signed=True,
        if_cut="mcp",
        channel="commentary",
    ),
}
"""The rows by the kind that a `Runner` names."""


def row_of(item: o.OutputHostedCall) -> Row:
    """The row of an item in the output."""
    return ROWS[KINDS[item.type]]


KINDS: Mapping[str, str] = {
    "code_interpreter_call": "code_interpreter",
    "shell_call": "shell",
    "web_search_call": "web_search",
    "mcp_call": "mcp",
    "mcp_approval_request": "mcp_approval",
}
"""The names of the rows, by the types of their items."""
