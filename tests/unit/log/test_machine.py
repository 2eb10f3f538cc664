"""The machine: which item a message becomes, and what is said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trt_responses.features.explain.transcript import Mint
from trt_responses.language.fragments import Closed, Opened, Repaired, Text
from trt_responses.log.log import Log
from trt_responses.log.machine import OPENS, Callee, Machine
from trt_responses.wire import events as e
from trt_responses.wire import output as o
from trt_responses.wire.response import Response

if TYPE_CHECKING:
    from trt_responses.language.fragments import Fragment

CALLEES = {"f": Callee("f"), "functions.f": Callee("f"), "functions.g": Callee("g")}


def made(*fragments: Fragment) -> tuple[list[e.Event], Machine, Log]:
    log = Log(Response("resp_0", 1, "gpt-oss"))
    machine = Machine(log, CALLEES, Mint())
    for fragment in fragments:
        machine.take(fragment)
    return [event for _, event in log.events()], machine, log


def item_of(channel: str | None, recipient: str | None = None) -> o.OutputItem:
    events, _, _ = made(Opened(channel, recipient, None))
    assert isinstance(events[0], e.OutputItemAdded)
    return events[0].item


@pytest.mark.parametrize(
    ("channel", "recipient", "expected"),
    [
        ("analysis", None, o.OutputReasoning("rs_0")),
        ("commentary", None, o.OutputMessage("msg_0", "commentary")),
        ("final", None, o.OutputMessage("msg_0", "final_answer")),
        (None, None, o.OutputMessage("msg_0", "final_answer")),
        ("thoughts", None, o.OutputMessage("msg_0", "final_answer")),
        ("commentary", "functions.f", o.OutputFunctionCall("fc_0", "call_0", "f")),
        ("commentary", "f", o.OutputFunctionCall("fc_0", "call_0", "f")),
        ("analysis", "functions.g", o.OutputFunctionCall("fc_0", "call_0", "g")),
        ("final", "functions.f", o.OutputFunctionCall("fc_0", "call_0", "f")),
        (None, "functions.f", o.OutputFunctionCall("fc_0", "call_0", "f")),
        ("commentary", "g", o.OutputReasoning("rs_0")),  # no such name was offered
        ("commentary", "functions.h", o.OutputReasoning("rs_0")),
        ("commentary", "user", o.OutputMessage("msg_0", "commentary")),
        ("analysis", "python", o.OutputReasoning("rs_0")),
        ("final", "<|channel|>final", o.OutputMessage("msg_0", "final_answer")),
        ("final", "", o.OutputMessage("msg_0", "final_answer")),
    ],
)
def test_a_message_becomes_the_item_that_its_header_asks_for(
    channel: str | None, recipient: str | None, expected: o.OutputItem
) -> None:
    assert item_of(channel, recipient) == expected


def test_every_channel_of_harmony_has_its_item() -> None:
    assert set(OPENS) == {"analysis", "commentary", "final", None}


def test_only_a_recipient_that_was_not_offered_is_a_repair() -> None:
    for recipient, expected in (("functions.h", 1), ("functions.f", 0), (None, 0), ("", 0)):
        _, machine, _ = made(Opened("commentary", recipient, None))
        assert machine.repairs["unknown_recipient"] == expected


def test_repairs_are_counted_by_kind_and_make_no_event() -> None:
    repairs = [Repaired("stray_text"), Repaired("undecodable"), Repaired("stray_text")]
    events, machine, _ = made(*repairs)
    assert events == []
    assert machine.repairs == {"stray_text": 2, "undecodable": 1}


def test_a_message_is_told_from_added_to_done() -> None:
    fragments: list[Fragment] = [
        Opened("final", None, None),
        Text([b"Hel"]),
        Text([b"l", b"o"]),
        Closed(True),
    ]
    events, _, log = made(*fragments)
    whole = o.OutputText("Hello")
    assert events == [
        e.OutputItemAdded(0, o.OutputMessage("msg_0", "final_answer")),
        e.ContentPartAdded("msg_0", 0, 0, o.OutputText()),
        e.OutputTextDelta("msg_0", 0, 0, "Hel"),
        e.OutputTextDelta("msg_0", 0, 0, "l"),
        e.OutputTextDelta("msg_0", 0, 0, "o"),
        e.OutputTextDone("msg_0", 0, 0, "Hello"),
        e.ContentPartDone("msg_0", 0, 0, whole),
        e.OutputItemDone(0, o.OutputMessage("msg_0", "final_answer", "completed", (whole,))),
    ]
    assert log.response.output == (o.OutputMessage("msg_0", "final_answer", "completed", (whole,)),)


def test_a_thought_is_told_from_added_to_done() -> None:
    events, _, _ = made(Opened("analysis", None, None), Text([b"Hm"]), Closed(True))
    whole = o.OutputReasoningText("Hm")
    assert events == [
        e.OutputItemAdded(0, o.OutputReasoning("rs_0")),
        e.ContentPartAdded("rs_0", 0, 0, o.OutputReasoningText()),
        e.ReasoningTextDelta("rs_0", 0, 0, "Hm"),
        e.ReasoningTextDone("rs_0", 0, 0, "Hm"),
        e.ContentPartDone("rs_0", 0, 0, whole),
        e.OutputItemDone(0, o.OutputReasoning("rs_0", "completed", (whole,))),
    ]


def test_a_call_is_told_from_added_to_done() -> None:
    fragments: list[Fragment] = [
        Opened("commentary", "functions.f", "json"),
        Text([rb"{\"a\":1}"]),
        Closed(True),
    ]
    events, _, _ = made(*fragments)
    whole = '{"a":1}'
    assert events == [
        e.OutputItemAdded(0, o.OutputFunctionCall("fc_0", "call_0", "f")),
        e.FunctionCallArgumentsDelta("fc_0", 0, whole),
        e.FunctionCallArgumentsDone("fc_0", 0, whole, "f"),
        e.OutputItemDone(0, o.OutputFunctionCall("fc_0", "call_0", "f", whole, "completed")),
    ]


def test_a_whole_call_without_arguments_is_an_empty_object_and_a_cut_one_is_not() -> None:
    header = Opened("commentary", "functions.f", None)
    for whole, expected in ((True, "{}"), (False, "")):
        events, _, _ = made(header, Closed(whole))
        deltas = [
            event.delta for event in events if isinstance(event, e.FunctionCallArgumentsDelta)
        ]
        assert deltas == [expected][: bool(expected)]
        assert isinstance(done := events[-1], e.OutputItemDone)
        assert isinstance(done.item, o.OutputFunctionCall)
        assert done.item.arguments == expected


@pytest.mark.parametrize("header", [Opened("analysis", None, None), Opened("final", None, None)])
def test_an_empty_message_has_an_empty_part(header: Opened) -> None:
    events, _, log = made(header, Closed(True))
    assert len(events) == 5
    (item,) = log.response.output
    assert isinstance(item, o.OutputReasoning | o.OutputMessage)
    assert [part.text for part in item.content] == [""]


@pytest.mark.parametrize("recipient", [None, "functions.f"])
def test_what_was_cut_is_incomplete_and_keeps_its_text(recipient: str | None) -> None:
    _, _, log = made(Opened("commentary", recipient, None), Text([b"{"]), Closed(False))
    (item,) = log.response.output
    assert isinstance(item, o.OutputMessage | o.OutputFunctionCall)
    assert item.status == "incomplete"


def test_items_are_numbered_in_order_and_each_has_its_own_id() -> None:
    one = (Opened("final", None, None), Text([b"a"]), Closed(True))
    call = (Opened("commentary", "f", None), Closed(True))
    events, _, log = made(*one, *call, *one, *call)
    added = [event for event in events if isinstance(event, e.OutputItemAdded)]
    assert [event.output_index for event in added] == [0, 1, 2, 3]
    assert [item.id for item in log.response.output] == ["msg_0", "fc_0", "msg_1", "fc_1"]
    calls = [item for item in log.response.output if isinstance(item, o.OutputFunctionCall)]
    assert [item.call_id for item in calls] == ["call_0", "call_1"]


def test_nothing_is_said_where_nothing_is_open() -> None:
    events, _, _ = made(Text([b"lost"]), Closed(True), Closed(False))
    assert events == []
    events, _, log = made(Opened("final", None, None), Closed(True), Text([b"late"]), Closed(True))
    assert len(events) == 5
    (item,) = log.response.output
    assert isinstance(item, o.OutputMessage | o.OutputFunctionCall)
    assert item.status == "completed"
