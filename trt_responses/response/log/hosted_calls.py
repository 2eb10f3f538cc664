"""Calls that the server runs itself, as they are told to the client: one row for each kind.

The events of a call, in their order: `added`, the steps `begun`, deltas of its text, what `whole`
gives; then the tool runs; then the step of its end, if that status has one, and `done`. A kind
without deltas waits for the whole text before `added`, so that its item is true from the start.
When a call is run, and by whom, is the tool loop's affair.
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
    """A tool that is run here, as calls to one of its recipients are told to the client."""

    kind: str
    """Its row in `ROWS`."""
    facts: Mapping[str, str] = NOTHING
    """What the item says before anything runs, by the item's own keys."""
    shows_outputs: bool = False
    """The client has asked for outputs that are null otherwise."""
    describe: Callable[[str], Mapping[str, Any]] | None = None
    """What the item says before anything runs, of the text that the model wrote."""


class Outcome(NamedTuple):
    """What became of a call."""

    status: o.HostedStatus = "in_progress"
    text: str | None = None
    """What the model was told; None where the call was broken off."""
    details: Mapping[str, Any] = NOTHING
    """What the item says besides, by the item's own keys."""


class Row(NamedTuple):
    """A kind of call."""

    prefix: str
    """Of its items' ids."""
    item: Item
    """The item, from the text that the model wrote to it and from what became of it."""
    text: Callable[[Any], str]
    """What the model wrote to it, of an item as it stands in the log."""
    delta: Callable[[str, int, str], e.Delta] | None = None
    """None: it waits for its text before `added`."""
    begun: tuple[e.StepName, ...] = ()
    whole: Callable[[HostedCall, str], tuple[e.Event, ...]] = lambda *_: ()
    """The events when its text is whole."""
    result: Callable[[HostedCall, str, int, Outcome], tuple[e.Event, ...]] | None = None
    """The events of an item of its own, with that id and index, that says what the call gave."""
    runs: tuple[e.StepName, ...] = ()
    """Steps between that and the tool's answer."""
    ends: Mapping[o.HostedStatus, e.StepName] = NO_STEPS
    empty: bytes = b""
    """What a call without text says."""
    run_here: bool = True
    """Else it is told, and waits for the client."""
    signed: bool = False
    """Its id vouches for what it says, when a client brings it back."""
    if_cut: str = ""
    """The kind that a call becomes whose text was cut; none: it stays what it is."""
    channel: str = "analysis"
    """Of a call that named none, and of its answer."""


class HostedCall:
    """A call of one of the rows: its item ends when the tool has answered."""

    def __init__(self, item_id: str, index: int, runner: Runner) -> None:
        self.id = item_id
        self.index = index
        self.runner = runner
        self.row = ROWS[runner.kind]
        self.empty = self.row.empty
        self.text = ""
        """What the model wrote, of a row that waits for it."""
        self.described = NOTHING

    def begin(self, text: str = "") -> tuple[e.Event, ...]:
        """The text is whole already, where the row waits for it."""
        if self.runner.describe is not None:
            self.described = self.runner.describe(text)
        self.text = text
        added = e.OutputItemAdded(self.index, self.row.item(self, text, Outcome()))
        return (added, *self._steps(self.row.begun))

    def sign(self, text: str, sign: Callable[[Sequence[str]], str]) -> None:
        """Put a signature of all that it says behind its id."""
        facts = self.runner.facts
        said = (self.id, facts["server_label"], facts["name"], text)
        self.id = f"{self.id}.{sign(said)}"

    def delta(self) -> e.Delta:
        assert self.row.delta is not None, "a call that waits for its text has no deltas"
        return self.row.delta(self.id, self.index, "")

    @property
    def call_id(self) -> str:
        """Of a kind of call that has one besides its item's id."""
        return f"call_{self.id.partition('_')[2]}"

    def end(self, item: o.OutputItem, status: o.Status) -> tuple[e.Event, ...]:
        """The end of the text; of the item too, where it was cut or nothing runs here."""
        text = self.text_of(item)
        whole = self.row.whole(self, text)
        if status != "completed":
            return (*whole, self._done(text, Outcome("incomplete")))
        if not self.row.run_here:
            return (*whole, self._done(text, Outcome("completed")))
        return (*whole, *self._steps(self.row.runs))

    def answer(self, item: o.OutputItem, outcome: Outcome) -> tuple[e.Event, ...]:
        """The end of the item: what the tool gave, or that it was broken off."""
        step = self.row.ends.get(outcome.status)
        ended = self._steps((step,) if step else ())
        return (*ended, self._done(self.text_of(item), outcome))

    def text_of(self, item: o.OutputItem) -> str:
        """What the model wrote, of its item as it stands in the log."""
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
    """With the sources of a search where the client has asked for them, once there are some."""
    action = dict({**call.described, **outcome.details}["action"])
    sources = action.pop("sources", None)
    if sources is not None and call.runner.shows_outputs and outcome.status != "in_progress":
        action["sources"] = sources
    return o.OutputWebSearchCall(call.id, action, outcome.status)


def _shell_call(call: HostedCall, _: str, outcome: Outcome) -> o.OutputContainerShellCall:
    """Its commands come in events. The API has no word for one that failed: its output says so."""
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
    """What could not be run gave its reason, and no exit code of its own."""
    told = {"stdout": "", "stderr": outcome.text or "", "outcome": NOT_RUN, **outcome.details}
    output = o.ShellOutput(**told)
    empty = o.OutputShellResult(item_id, call.call_id)
    return (
        e.OutputItemAdded(index, empty),
        e.ShellOutputDelta(item_id, index, 0, o.ShellText(output.stdout, output.stderr)),
        e.ShellOutputDone(item_id, index, 0, (output,)),
        e.OutputItemDone(index, replace(empty, output=(output,), status="completed")),
    )


def _command(item: o.OutputContainerShellCall) -> str:
    """A call's arguments, for an item whose own text is not known any more."""
    return json.dumps({"cmd": ["bash", "-c", *item.action.commands]}, ensure_ascii=False)


def _searched(item: o.OutputWebSearchCall) -> str:
    """A call's arguments, from what it did: for an item whose own text is not known any more."""
    action = item.action
    match action["type"]:
        case "search":
            return json.dumps({"query": action["query"]}, ensure_ascii=False)
        case "open_page":
            return json.dumps({"id": action["url"] or -1}, ensure_ascii=False)
        case _:
            return json.dumps({"pattern": action["pattern"]}, ensure_ascii=False)


def _mcp_call(call: HostedCall, arguments: str, outcome: Outcome) -> o.OutputMcpCall:
    """An error, which the details tell, stands in the place of the output."""
    told = {"output": outcome.text, **outcome.details}
    if told.get("error") is not None:
        told["output"] = None
    facts = call.runner.facts
    label, name, request_id = facts["server_label"], facts["name"], facts.get("approval_request_id")
    return o.OutputMcpCall(
        call.id,
        label,
        name,
        arguments,
        approval_request_id=request_id,
        status=outcome.status,
        **told,
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
"""By the kind that a `Runner` names."""


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
"""The rows by the types of their items."""
