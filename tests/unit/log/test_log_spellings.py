"""The log in its other spellings: scored deltas, and the specification's names."""

from __future__ import annotations

import pytest

from tests.support.replay import parsed, plain
from trt_responses.features.open_responses.install import OPEN_RESPONSES
from trt_responses.log.entries import ScoredDeltas
from trt_responses.log.log import Cursor, Log
from trt_responses.wire import events as e
from trt_responses.wire import output as o
from trt_responses.wire.dialect import DIALECTS, OPENAI, Dialect
from trt_responses.wire.response import Response

TEXT = e.OutputTextDelta("msg_0", 0, 0, "")
THOUGHT = e.ReasoningTextDelta("rs_0", 0, 0, "")
PIECES = [(b"a", -0.5), (b'\\"b', -1.5), (b"\xc3\xa9", -2.5)]


def scored(dialect: str = "openai") -> Log:
    log = Log(Response("resp_0", 1, "gpt-oss"), DIALECTS[dialect])
    log.append(e.OutputItemAdded(0, o.OutputMessage("msg_0", "final_answer")))
    log.append(e.ContentPartAdded("msg_0", 0, 0, o.OutputText()))
    deltas = log.grow(TEXT, scored=True)
    assert isinstance(deltas, ScoredDeltas)
    for piece, logprob in PIECES:
        deltas.logprobs.append((o.TokenLogprob(piece.decode(), logprob, tuple(piece)),))
        deltas.pieces.append(piece)
    return log


@pytest.mark.parametrize("dialect", DIALECTS)
def test_scored_frames_say_what_the_events_say_from_any_number_on(dialect: str) -> None:
    log = scored(dialect)
    told = [plain(event) | {"sequence_number": number} for number, event in log.events()]
    for after in range(-1, len(told)):
        assert parsed(Cursor(log, after=after).take()) == told[after + 1 :]


def test_what_is_read_piece_by_piece_is_what_is_read_at_once() -> None:
    log = scored()
    whole = Cursor(log).take()
    cursor = Cursor(log)
    taken = cursor.take()
    (deltas,) = (entry for entry in log.entries if isinstance(entry, ScoredDeltas))
    deltas.logprobs.append(())
    deltas.pieces.append(b"!")
    assert taken == whole
    assert parsed(cursor.take())[0]["delta"] == "!"


def test_the_fold_gathers_each_tokens_logprob_once() -> None:
    log = scored()
    for _ in range(2):
        (item,) = log.settled()
        assert isinstance(item, o.OutputMessage)
        assert item.content[0].text == 'a"bé'
        assert [entry.logprob for entry in item.content[0].logprobs] == [-0.5, -1.5, -2.5]


@pytest.mark.parametrize(
    ("dialect", "name"),
    [(OPENAI, "response.reasoning_text.delta"), (OPEN_RESPONSES, "response.reasoning.delta")],
)
def test_a_thought_is_named_as_the_dialect_names_it(dialect: Dialect, name: str) -> None:
    log = Log(Response("resp_0", 1, "gpt-oss"), dialect)
    log.append(e.OutputItemAdded(0, o.OutputReasoning("rs_0")))
    log.append(e.ContentPartAdded("rs_0", 0, 0, o.OutputReasoningText()))
    log.grow(THOUGHT).pieces.extend((b"a", b"b"))
    told = parsed(Cursor(log, after=1).take())
    assert [(event["type"], event["delta"]) for event in told] == [(name, "a"), (name, "b")]


def test_an_error_is_nested_or_flat_and_never_both() -> None:
    for dialect, keys in ((OPENAI, {"code", "message", "param"}), (OPEN_RESPONSES, {"error"})):
        log = Log(Response("resp_0", 1, "gpt-oss"), dialect)
        log.append(e.Error("server_error", "It broke."))
        (event,) = parsed(Cursor(log).take())
        assert event.keys() == keys | {"type", "sequence_number"}
