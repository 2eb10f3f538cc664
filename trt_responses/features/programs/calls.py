"""The events of programs, of their results, and of the calls that they make."""

from __future__ import annotations

from trt_responses.features.hosted_tools.hosted_calls import HostedCall, Outcome, Row
from trt_responses.features.programs import output as po
from trt_responses.features.tool_items.events import CustomInputDelta, CustomInputDone
from trt_responses.features.tool_items.output import OutputCustomCall
from trt_responses.frozen import replace
from trt_responses.log.item_events import Callee, FolderCall, Mint
from trt_responses.wire import events as e
from trt_responses.wire import output as o
from trt_responses.wire.past_calls import object_in

PROGRAM, LATER_RESULT = "program", "program_output"


def code_in(text: str) -> str:
    """The program in a call that the model wrote, as far as it was written: text that is no JSON is
    a program itself."""
    found = object_in(text, partial="trailing-strings")
    code = text if found is None else found.get("code", "")
    return code if isinstance(code, str) else ""


def _program(call: HostedCall, text: str, outcome: Outcome) -> po.OutputProgram:
    code, began_ms = code_in(text), call.runner.facts["began_ms"]
    assert call.runner.sign is not None, "nothing is installed without a key"
    signature = call.runner.sign((PROGRAM, call.call_id, began_ms, code))
    print_ = f"{began_ms}.{signature}"
    return po.OutputProgram(call.id, call.call_id, code, print_, outcome.status)


def _result(call: HostedCall, item_id: str, index: int, outcome: Outcome) -> tuple[e.Event, ...]:
    empty = po.OutputProgramResult(item_id, call.call_id)
    whole = replace(empty, result=outcome.text or "", status=_status(outcome))
    return (e.OutputItemAdded(index, empty), e.OutputItemDone(index, whole))


def _later_result(call: HostedCall, _: str, outcome: Outcome) -> po.OutputLaterResult:
    call_id = call.runner.facts["call_id"]
    return po.OutputLaterResult(call.id, call_id, outcome.text or "", _status(outcome))


def _status(outcome: Outcome) -> po.ResultStatus:
    return "completed" if outcome.status == "completed" else "incomplete"


ROWS = {
    PROGRAM: Row(po.OutputProgram, "prog", _program, result=_result, empty=b"{}"),
    LATER_RESULT: Row(po.OutputLaterResult, "progo", _later_result),
}


class ProgramsToolCall(FolderCall):
    """A program's call of a tool of the client."""

    def __init__(self, mint: Mint, index: int, callee: Callee, caller: po.Caller) -> None:
        self.id = mint("ctc" if callee.custom else "fc")
        self.index = index
        self._callee = callee
        self._caller = caller
        self._call_id = mint("call")

    def begin(self) -> tuple[e.Event, ...]:
        return (e.OutputItemAdded(self.index, self._item("", "in_progress")),)

    def delta(self) -> e.Delta:
        if self._callee.custom:
            return CustomInputDelta(self.id, self.index, "")
        return e.FunctionCallArgumentsDelta(self.id, self.index, "")

    def end(self, item: o.OutputItem, status: o.Status) -> tuple[e.Event, ...]:
        if isinstance(item, OutputCustomCall):
            whole: e.Event = CustomInputDone(self.id, self.index, item.input)
            return whole, e.OutputItemDone(self.index, replace(item, status=status))
        assert isinstance(item, o.OutputFunctionCall)
        name = self._callee.name
        whole = e.FunctionCallArgumentsDone(self.id, self.index, item.arguments, name)
        return whole, e.OutputItemDone(self.index, replace(item, status=status))

    def _item(self, text: str, status: o.Status) -> o.OutputItem:
        name, space, custom, _ = self._callee
        fields = (self.id, self._call_id, name, text, status)
        if custom and space is not None:
            return po.ProgramsNamespacedCustomCall(*fields, caller=self._caller, namespace=space)
        if custom:
            return po.ProgramsCustomCall(*fields, caller=self._caller)
        if space is not None:
            return po.ProgramsNamespacedCall(*fields, caller=self._caller, namespace=space)
        return po.ProgramsCall(*fields, caller=self._caller)
