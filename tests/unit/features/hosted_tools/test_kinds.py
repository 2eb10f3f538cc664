"""Calls that the server runs: what each kind's row says of one, from its beginning to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trt_responses.features.explain.transcript import Mint
from trt_responses.features.hosted_tools.hosted_calls import Outcome, Runner
from trt_responses.features.hosted_tools.kinds import KINDS
from trt_responses.features.tool_items import output as to
from trt_responses.language.fragments import Closed, Opened, Text
from trt_responses.log.log import Log
from trt_responses.log.machine import Machine
from trt_responses.wire import output as o
from trt_responses.wire.response import Response

if TYPE_CHECKING:
    from trt_responses.wire.output import OutputItem

SERVER = {"server_label": "docs", "name": "ask"}
ERROR = {"type": "mcp_protocol_error", "code": -32600, "message": "Session terminated"}


def told(
    kind: str, pieces: list[bytes], outcome: Outcome | None, *, whole: bool = True
) -> tuple[list[str], OutputItem]:
    """The names of a call's events, and its item."""
    log = Log(Response("resp_0", 1, "gpt-oss"))
    runner = Runner(kind, {"container_id": "cntr_0"} if kind == "code_interpreter" else SERVER)
    machine = Machine(log, {}, Mint(), runners={"tool": runner.call})
    machine.take(Opened("commentary", "tool", None))
    if pieces:
        machine.take(Text(pieces))
    machine.take(Closed(whole))
    if outcome is not None:
        machine.answer(outcome)
    (item,) = log.response.output
    return [event.type.removeprefix("response.") for _, event in log.events()], item


MCP = ["output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta"]
REQUEST = to.OutputMcpApprovalRequest("mcpr_0", "docs", "ask", '{"q":1}')


@pytest.mark.parametrize(
    ("outcome", "end", "item"),
    [
        (Outcome("completed", "42"), ["completed"], {"output": "42", "error": None}),
        (Outcome("failed", "no", {"error": ERROR}), ["failed"], {"output": None, "error": ERROR}),
        (Outcome("incomplete"), [], {"output": None, "error": None}),
    ],
)
def test_a_call_of_an_mcp_tool_ends_as_its_tool_has(
    outcome: Outcome, end: list[str], item: dict[str, object]
) -> None:
    kinds, call = told("mcp", [b'{\\"q\\":1}'], outcome)
    steps = [f"mcp_call.{step}" for step in end]
    assert kinds == [*MCP, "mcp_call_arguments.done", *steps, "output_item.done"]
    assert isinstance(call, to.OutputMcpCall)
    assert (call.status, call.arguments) == (outcome.status, '{"q":1}')
    assert {"output": call.output, "error": call.error} == item


def test_a_call_that_waits_is_told_of_when_its_text_is_whole() -> None:
    kinds, item = told("mcp_approval", [b'{\\"q', b'\\":1}'], None)
    assert kinds == ["output_item.added", "output_item.done"]
    assert item == REQUEST


def test_nobody_is_asked_to_approve_a_call_that_was_cut() -> None:
    kinds, item = told("mcp_approval", [b'{\\"q'], None, whole=False)
    assert kinds == [*MCP[:2], "mcp_call_arguments.done", "output_item.done"]
    assert isinstance(item, to.OutputMcpCall)
    assert (item.status, item.arguments) == ("incomplete", '{"q')


@pytest.mark.parametrize(
    ("kind", "text"), [("mcp", "{}"), ("mcp_approval", "{}"), ("code_interpreter", "")]
)
def test_a_call_without_text_says_what_its_row_does(kind: str, text: str) -> None:
    _, item = told(kind, [], Outcome("completed") if KINDS[kind].kind.run_here else None)
    assert isinstance(item, o.OutputHostedCall)
    assert item.text() == text
