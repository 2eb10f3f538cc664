"""The fold, event by event, and the SDK as the judge of what each event must hold."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.folding import apply
from tests.support.replay import load, names, parsed, staged
from tests.support.sdk_judge import REQUIRED, SPECIFIED, objects, refused, required_by_sdk, without
from trt_responses.features.explain.transcript import Mint
from trt_responses.features.hosted_tools.citations import CitationText, CitedText
from trt_responses.features.hosted_tools.hosted_calls import Outcome, Runner
from trt_responses.features.hosted_tools.kinds import KINDS
from trt_responses.features.tool_items import output as to
from trt_responses.features.tool_items.events import step
from trt_responses.language.fragments import Closed, Opened, Text
from trt_responses.log.fold import output_after
from trt_responses.log.log import Cursor, Log
from trt_responses.log.machine import Machine
from trt_responses.tools.session import Source
from trt_responses.wire import events as e
from trt_responses.wire import output as o
from trt_responses.wire.response import Response

if TYPE_CHECKING:
    from tests.support.replay import Json
    from trt_responses.harmony.read.reader import Tables
    from trt_responses.tokens.vocabulary import Vocabulary

EMPTY = Response("resp_0", 1, "gpt-oss")
MESSAGE = o.OutputMessage("msg_0", "final_answer")
THOUGHT = o.OutputReasoning("rs_0")
CALL = o.OutputFunctionCall("fc_0", "call_0", "f")
SEARCH = {"action": {"type": "search", "query": "a", "queries": ["a"], "sources": []}}
PROTOCOL_ERROR = {"type": "mcp_protocol_error", "code": -32600, "message": "Session terminated"}


def folded(*events: e.Event, start: Response = EMPTY) -> Response:
    for event in events:
        start = apply(start, event)
    return start


def with_text(text: str, *, done: bool = True) -> o.OutputMessage:
    return replace(
        MESSAGE, content=(o.OutputText(text),), status="completed" if done else "in_progress"
    )


def test_a_message_grows_by_its_deltas() -> None:
    events: list[e.Event] = [
        e.OutputItemAdded(0, MESSAGE),
        e.ContentPartAdded("msg_0", 0, 0, o.OutputText()),
        e.OutputTextDelta("msg_0", 0, 0, "Hel"),
        e.OutputTextDelta("msg_0", 0, 0, "lo"),
    ]
    assert folded(*events).output == (with_text("Hello", done=False),)


def test_a_thought_grows_by_its_deltas() -> None:
    events: list[e.Event] = [
        e.OutputItemAdded(0, THOUGHT),
        e.ContentPartAdded("rs_0", 0, 0, o.OutputReasoningText()),
        e.ReasoningTextDelta("rs_0", 0, 0, "H"),
        e.ReasoningTextDelta("rs_0", 0, 0, "m"),
    ]
    assert folded(*events).output == (replace(THOUGHT, content=(o.OutputReasoningText("Hm"),)),)


def test_a_calls_arguments_grow_by_their_deltas() -> None:
    events: list[e.Event] = [
        e.OutputItemAdded(0, CALL),
        e.FunctionCallArgumentsDelta("fc_0", 0, '{"a"'),
        e.FunctionCallArgumentsDelta("fc_0", 0, ":1}"),
    ]
    assert folded(*events).output == (replace(CALL, arguments='{"a":1}'),)


def test_a_done_event_says_the_text_as_a_whole() -> None:
    """Each done-event alone is enough: a reader that joined late misses no text."""
    message: list[e.Event] = [
        e.OutputItemAdded(0, MESSAGE),
        e.ContentPartAdded("msg_0", 0, 0, o.OutputText()),
    ]
    assert folded(*message, e.OutputTextDone("msg_0", 0, 0, "Hi")).output == (
        with_text("Hi", done=False),
    )
    part = e.ContentPartDone("msg_0", 0, 0, o.OutputText("Hi"))
    assert folded(*message, part).output == (with_text("Hi", done=False),)
    done = e.FunctionCallArgumentsDone("fc_0", 0, "{}", "f")
    assert folded(e.OutputItemAdded(0, CALL), done).output == (replace(CALL, arguments="{}"),)
    thought: list[e.Event] = [
        e.OutputItemAdded(0, THOUGHT),
        e.ContentPartAdded("rs_0", 0, 0, o.OutputReasoningText()),
        e.ReasoningTextDone("rs_0", 0, 0, "Hm"),
    ]
    assert folded(*thought).output == (replace(THOUGHT, content=(o.OutputReasoningText("Hm"),)),)


def test_what_the_output_says_already_is_not_copied() -> None:
    """The machine reads a text here and says it again as a whole, however long it is."""
    part = o.OutputText("Hi")
    output = (CALL, replace(MESSAGE, content=(part,)))
    said = e.OutputTextDone("msg_0", 1, 0, part.text), e.ContentPartDone("msg_0", 1, 0, part)
    assert [output_after(output, event) is output for event in said] == [True, True]


def test_an_item_that_is_done_replaces_what_was_gathered_and_no_other_item() -> None:
    events: list[e.Event] = [
        e.OutputItemAdded(0, MESSAGE),
        e.OutputItemAdded(1, CALL),
        e.OutputItemDone(0, with_text("Hi")),
    ]
    assert folded(*events).output == (with_text("Hi"), CALL)


def test_a_lifecycle_event_brings_its_own_response() -> None:
    other = replace(EMPTY, status="completed", output=(with_text("Hi"),))
    for kind in (e.Created, e.Queued, e.InProgress, e.Completed, e.Incomplete, e.Failed):
        assert folded(kind(other)) is other


def test_an_error_changes_nothing() -> None:
    assert folded(e.Error("server_error", "It broke.")) is EMPTY


def test_the_fold_never_changes_the_response_that_it_was_given() -> None:
    before = folded(e.OutputItemAdded(0, CALL))
    after = apply(before, e.FunctionCallArgumentsDelta("fc_0", 0, "{"))
    assert before.output == (CALL,)
    assert after.output != before.output


def test_an_event_that_does_not_fit_its_item_is_refused() -> None:
    call = folded(e.OutputItemAdded(0, CALL))
    with pytest.raises(TypeError, match="function_call has no content"):
        apply(call, e.OutputTextDelta("fc_0", 0, 0, "x"))
    with pytest.raises(TypeError, match="message has no arguments"):
        apply(folded(e.OutputItemAdded(0, MESSAGE)), e.FunctionCallArgumentsDelta("msg_0", 0, "x"))
    with pytest.raises(IndexError):
        apply(EMPTY, e.OutputTextDelta("msg_0", 0, 0, "x"))


# --- the judge must be able to say no ---------------------------------------------------------


@pytest.fixture(scope="module")
def samples(vocabulary: Vocabulary, tables: Tables) -> dict[str, list[Json]]:
    """Every event of every transcript, by kind."""
    found: dict[str, list[Json]] = {}
    for name in names():
        stage = staged(load(name, vocabulary), tables)
        asyncio.run(stage.play())
        for event in stage.events():
            found.setdefault(event["type"], []).append(event)
    for event in hosted_events():
        found.setdefault(event["type"], []).append(event)
    return found


def hosted_events() -> list[Json]:
    """Of calls that the server runs."""
    log = Log(EMPTY)
    server = {"server_label": "docs", "name": "ask"}
    runners = {
        "python": Runner("code_interpreter", {"container_id": "cntr_0"}, shows_outputs=True),
        "functions.docs__ask": Runner("mcp", server),
        "functions.docs__delete": Runner("mcp_approval", server),
        "browser.search": Runner("web_search", describe=lambda _: SEARCH, shows_outputs=True),
    }
    assert {one.kind for one in runners.values()} < KINDS.keys()
    marks = CitationText(lambda *_: Source("http://a.test/", "A"))
    calls = {name: runner.call for name, runner in runners.items()}
    machine = Machine(log, {}, Mint(), runners=calls, answer_text=lambda _: CitedText(marks))
    listed = to.OutputMcpListTools("mcpl_0", "docs")
    begun, completed, failed = (
        step(f"response.mcp_list_tools.{word}") for word in ("in_progress", "completed", "failed")
    )
    machine.tell(listed, (begun, completed), listed)
    machine.tell(listed, (begun, failed), replace(listed, error="no"))
    for recipient, outcome in (
        ("python", Outcome("completed", "2")),
        ("functions.docs__ask", Outcome("completed", "42")),
        ("functions.docs__ask", Outcome("failed", "no", {"error": PROTOCOL_ERROR})),
        ("functions.docs__delete", None),
        ("browser.search", Outcome("completed", "[0] …", SEARCH)),
    ):
        machine.take(Opened("commentary", recipient, "code"))
        machine.take(Text([b"{}"]))
        machine.take(Closed(whole=True))
        assert machine.unanswered == (outcome is not None)
        if outcome is not None:
            machine.answer(outcome)
    machine.take(Opened("final", None, None))
    machine.take(Text(["so 【0†L1】".encode()]))
    machine.take(Closed(whole=True))
    return parsed(Cursor(log).take())


def richest(events: list[Json]) -> list[Json]:
    """Few events that hold, between them, every shape of object that there is."""
    chosen, known = [], set[str]()
    for event in sorted(events, key=lambda event: -len(str(event))):
        shapes = {str((node.get("type"), sorted(node))) for place, node in objects(event)}
        if shapes - known:
            chosen.append(event)
            known |= shapes
    return chosen


def test_the_transcripts_hold_every_kind_of_event(samples: dict[str, list[Json]]) -> None:
    assert set(samples) == set(REQUIRED)


@pytest.mark.parametrize("kind", REQUIRED)
def test_the_sdk_requires_the_keys_that_we_believe(
    kind: str, samples: dict[str, list[Json]]
) -> None:
    top = {place[0] for place in required_by_sdk(samples[kind][0]) if len(place) == 1}
    assert top == {*REQUIRED[kind], "type", "sequence_number"}


# 3 s on one core for all kinds.
@pytest.mark.parametrize("kind", REQUIRED)
def test_dropping_any_key_that_the_sdk_requires_turns_the_judge_red(
    kind: str, samples: dict[str, list[Json]]
) -> None:
    tried = set()
    for event in richest(samples[kind]):
        assert refused(event) is None
        for place in required_by_sdk(event):
            assert refused(without(event, place)) is not None, place
            tried.add(place[-1])
    assert tried >= {*REQUIRED[kind], "type", "sequence_number"}


@pytest.mark.parametrize("kind", REQUIRED)
def test_dropping_any_key_of_the_specification_turns_the_judge_red(
    kind: str, samples: dict[str, list[Json]]
) -> None:
    for event in richest(samples[kind]):
        for place, node in objects(event):
            for key in SPECIFIED.get(str(node.get("type") or node.get("object")), ()):
                assert refused(without(event, (*place, key))) is not None, (place, key)


def test_the_judge_refuses_wrong_types_too(samples: dict[str, list[Json]]) -> None:
    delta = samples["response.output_text.delta"][0]
    assert refused(delta | {"output_index": "first"}) is not None
    assert refused(delta | {"type": "response.output_text.bit"}) is not None
    completed = samples["response.completed"][0]
    assert refused(completed | {"response": completed["response"] | {"output": None}}) is not None
