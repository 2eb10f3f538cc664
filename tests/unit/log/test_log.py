"""The log: numbers, frames, growing texts, and readers that come and go."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from tests.support.replay import followed, parsed, plain
from tests.support.turns import turn
from trt_responses.log.entries import TABLED
from trt_responses.log.log import Cursor, Log
from trt_responses.wire import events as e
from trt_responses.wire import output as o
from trt_responses.wire.response import Response

RESPONSE = Response("resp_0", 1, "gpt-oss")
DELTA = e.OutputTextDelta("msg_0", 0, 0, "")


def opened() -> Log:
    """A log whose next entry is a message's text; four events so far."""
    log = Log(RESPONSE)
    log.append(e.Created(RESPONSE))
    log.append(e.InProgress(RESPONSE))
    log.append(e.OutputItemAdded(0, o.OutputMessage("msg_0", "final_answer")))
    log.append(e.ContentPartAdded("msg_0", 0, 0, o.OutputText()))
    return log


def text_of(log: Log) -> str:
    (item,) = log.response.output
    assert isinstance(item, o.OutputMessage)
    return item.content[0].text


def numbers(frames: bytes) -> list[int]:
    return [event["sequence_number"] for event in parsed(frames)]


def test_events_are_numbered_from_zero_without_a_gap() -> None:
    log = opened()
    deltas = log.grow(DELTA)
    deltas.pieces += [b"a", b"b", b"c"]
    log.append(e.OutputTextDone("msg_0", 0, 0, "abc"))
    assert numbers(Cursor(log).take()) == list(range(8))
    assert [number for number, _ in log.events()] == list(range(8))
    assert log.next_number == 8


def test_frames_say_what_the_events_say() -> None:
    log = opened()
    log.grow(DELTA).pieces += [b"Hi", rb"\"\n", "🦙".encode(), rb"\u0001"]
    log.append(e.OutputTextDone("msg_0", 0, 0, 'Hi"\n🦙\x01'))
    framed = parsed(Cursor(log).take())
    assert framed == [plain(event) | {"sequence_number": n} for n, event in log.events()]
    assert [f["delta"] for f in framed if "delta" in f] == ["Hi", '"\n', "🦙", "\x01"]


def test_a_frame_is_one_event_line_one_data_line_and_a_blank_one() -> None:
    log = Log(RESPONSE)
    log.append(e.Error("server_error", "It\nbroke."))
    name, data, *rest = Cursor(log).take().split(b"\n")
    assert (name, rest) == (b"event: error", [b"", b""])
    assert orjson.loads(data.removeprefix(b"data: "))["message"] == "It\nbroke."


def test_a_growing_text_is_in_the_response_and_goes_on_growing() -> None:
    log = opened()
    deltas = log.grow(DELTA)
    assert text_of(log) == ""
    deltas.pieces.append(b"Hel")
    assert text_of(log) == "Hel"
    assert text_of(log) == "Hel", "reading must not settle anything"
    deltas.pieces += [b"l", b"o"]
    assert text_of(log) == "Hello"
    log.append(e.OutputTextDone("msg_0", 0, 0, "Hello"))
    assert text_of(log) == "Hello"


def test_an_escape_is_whole_in_its_piece_and_every_delta_is_json() -> None:
    log = opened()
    log.grow(DELTA).pieces += [rb"\\", b"n", rb"\"", rb"\u001f"]
    assert text_of(log) == '\\n"\x1f'
    assert [event["delta"] for event in parsed(Cursor(log, after=3).take())] == [
        "\\",
        "n",
        '"',
        "\x1f",
    ]


def test_a_text_that_never_came_is_no_event() -> None:
    log = opened()
    log.grow(DELTA)
    cursor = Cursor(log)
    assert numbers(cursor.take()) == [0, 1, 2, 3]
    log.append(e.OutputTextDone("msg_0", 0, 0, ""))
    assert numbers(cursor.take()) == [4]
    assert numbers(Cursor(log, after=3).take()) == [4]
    assert [number for number, _ in log.events()] == list(range(5))


def test_a_cursor_takes_each_event_once() -> None:
    log = opened()
    cursor, deltas = Cursor(log), log.grow(DELTA)
    assert numbers(cursor.take()) == [0, 1, 2, 3]
    assert cursor.take() == b""
    for number, piece in enumerate((b"a", b"b"), 4):
        deltas.pieces.append(piece)
        assert numbers(cursor.take()) == [number]
        assert cursor.take() == b""
    deltas.pieces.append(b"c")
    log.append(e.OutputTextDone("msg_0", 0, 0, "abc"))
    log.close()
    assert numbers(cursor.take()) == [6, 7]
    assert cursor.take() == b""


def test_two_cursors_do_not_disturb_each_other() -> None:
    log = opened()
    fast, slow = Cursor(log), Cursor(log)
    deltas = log.grow(DELTA)
    taken = b""
    for piece in (b"a", b"b", b"c"):
        deltas.pieces.append(piece)
        taken += fast.take()
    assert slow.take() == taken


@pytest.mark.parametrize("after", range(-1, 9))
def test_a_cursor_begins_behind_the_number_it_was_given(after: int) -> None:
    log = opened()
    log.grow(DELTA).pieces += [b"a", b"b", b"c"]
    log.append(e.OutputTextDone("msg_0", 0, 0, "abc"))
    assert numbers(Cursor(log, after=after).take()) == list(range(after + 1, 8))


@pytest.mark.parametrize("after", range(-1, 9))
def test_a_cursor_may_begin_behind_what_has_not_happened_yet(after: int) -> None:
    log = Log(RESPONSE)
    cursor = Cursor(log, after=after)
    taken = cursor.take()
    log.append(e.Created(RESPONSE))
    taken += cursor.take()
    log.append(e.InProgress(RESPONSE))
    log.append(e.OutputItemAdded(0, o.OutputMessage("msg_0", "final_answer")))
    taken += cursor.take()
    log.append(e.ContentPartAdded("msg_0", 0, 0, o.OutputText()))
    deltas = log.grow(DELTA)
    taken += cursor.take()
    for piece in (b"a", b"b", b"c"):
        deltas.pieces.append(piece)
        taken += cursor.take()
    log.append(e.OutputTextDone("msg_0", 0, 0, "abc"))
    taken += cursor.take()
    assert numbers(taken) == list(range(after + 1, 8))


@pytest.mark.parametrize("told", [5, 7, 40], ids=["in fewer", "as many", "in more"])
@pytest.mark.parametrize("growing", [True, False])
def test_a_log_that_is_made_again_goes_on_with_the_numbers_that_were_told(
    told: int, growing: bool
) -> None:
    """Its text may have been told in other pieces than it is made again in."""
    log = opened()
    deltas = log.grow(DELTA)
    deltas.pieces += [b"a", b"b", b"c"]
    if not growing:
        log.append(e.OutputTextDone("msg_0", 0, 0, "abc"))
    log.renumber(told)
    cursor = Cursor(log, after=told - 1)
    assert cursor.take() == b""
    assert log.next_number == told
    if growing:
        deltas.pieces.append(b"d")
        log.append(e.OutputTextDone("msg_0", 0, 0, "abcd"))
    log.append(e.ContentPartDone("msg_0", 0, 0, o.OutputText("abcd" if growing else "abc")))
    assert numbers(cursor.take()) == list(range(told, told + (3 if growing else 1)))
    assert text_of(log) == ("abcd" if growing else "abc")


def test_a_cursor_far_behind_the_end_of_a_closed_log_takes_nothing() -> None:
    log = opened()
    log.close()
    assert Cursor(log, after=1_000).take() == b""
    assert Cursor(log, after=3).take() == b""
    assert Cursor(log, after=-5).take() == Cursor(log).take()


def test_a_taken_frame_never_changes() -> None:
    log = opened()
    deltas = log.grow(DELTA)
    deltas.pieces.append(b"a")
    before = Cursor(log).take()
    deltas.pieces.append(b"b")
    log.append(e.OutputTextDone("msg_0", 0, 0, "ab"))
    assert Cursor(log).take().startswith(before)


def test_a_log_that_ends_without_an_event_has_the_snapshot_it_was_given() -> None:
    log = opened()
    log.grow(DELTA).pieces.append(b"a")
    last = Response("resp_0", 1, "gpt-oss", status="cancelled")
    log.settle(last)
    log.close()
    assert log.response is last
    assert log.next_number == 5


def test_every_waiting_reader_is_woken_once_and_a_gone_one_does_no_harm() -> None:
    async def wait() -> None:
        log = Log(RESPONSE)
        log.wake()  # nobody is there
        one, two, gone = log.changed(), log.changed(), log.changed()
        gone.cancel()
        log.wake()
        assert one.done()
        assert two.done()
        later = log.changed()
        assert not later.done()
        log.close()
        assert later.done()

    asyncio.run(wait())


def test_a_listener_is_told_within_each_wake_and_at_the_end() -> None:
    log, told = opened(), list[bytes | None]()
    assert numbers(log.listen(told.append)) == [0, 1, 2, 3]
    log.wake()
    assert told == []
    deltas = log.grow(DELTA)
    for step in ([b"a", b"b"], [b"c"], [], [b"d"], [b"e", b"f", b"g"], [b"h"]):
        deltas.pieces += step
        log.wake()
    log.append(e.OutputTextDone("msg_0", 0, 0, "ab"))
    log.close()
    assert told.pop() is None
    assert [numbers(frames or b"") for frames in told] == [
        [4, 5],
        [6],
        [7],
        [8, 9, 10],
        [11],
        [12],
    ]
    assert b"".join(filter(None, told)) == Cursor(log, after=3).take()


@pytest.mark.parametrize("listeners", [0, 1, 2])
def test_a_piece_that_is_said_is_told_at_once_to_all_who_listen(listeners: int) -> None:
    log = opened()
    told = [list[bytes | None]() for _ in range(listeners)]
    for one in told:
        log.listen(one.append)
    log.grow(DELTA)
    for piece in (b"a", b"b", b"c"):
        log.add_text(piece)
    assert text_of(log) == "abc"
    log.append(e.OutputTextDone("msg_0", 0, 0, "abc"))
    log.wake()
    for one in told:
        assert [numbers(frames or b"") for frames in one] == [[4], [5], [6], [7]]
        assert b"".join(filter(None, one)) == Cursor(log, after=3).take()


def test_a_piece_that_is_said_wakes_whoever_waits_for_a_change() -> None:
    async def wait() -> None:
        log, told = opened(), list[bytes | None]()
        log.listen(told.append)
        log.grow(DELTA)
        log.add_text(b"a")
        changed = log.changed()
        log.add_text(b"b")
        assert changed.done()
        log.add_text(b"c")
        assert b"".join(filter(None, told)) == Cursor(log, after=3).take()

    asyncio.run(wait())


def test_pieces_are_said_beyond_the_numbers_that_are_tabled() -> None:
    log, told = opened(), list[bytes | None]()
    log.listen(told.append)
    deltas = log.grow(DELTA)
    deltas.pieces += [b"."] * (TABLED - 6)
    log.wake()
    for piece in (b"a", b"b", b"c", b"d"):
        log.add_text(piece)
    assert [numbers(frames or b"") for frames in told[1:]] == [
        [number] for number in range(TABLED - 2, TABLED + 2)
    ]


@pytest.mark.parametrize("after", [-1, 0, 4, 5, 6, 9, 12, 100])
def test_a_listener_hears_what_is_beyond_its_number_and_no_more(after: int) -> None:
    """It comes in the middle of a text, while another listens, and may begin in the future."""
    log, first, told = opened(), list[bytes | None](), list[bytes | None]()
    log.listen(first.append)
    deltas = log.grow(DELTA)
    deltas.pieces += [b"a", b"b"]
    told.append(log.listen(told.append, after=after))
    for word in (b"c", b"d", b"e", b"f"):
        deltas.pieces.append(word)
        log.wake()
    log.append(e.OutputTextDone("msg_0", 0, 0, "abcdef"))
    log.close()
    assert (told.pop(), first.pop()) == (None, None)
    assert b"".join(filter(None, told)) == Cursor(log, after=after).take()
    assert b"".join(filter(None, first)) == Cursor(log, after=3).take()
    log.unlisten(told.append)
    log.unlisten(first.append)


def test_readers_of_any_speed_read_the_same_to_the_end() -> None:
    """One that yields often, one that yields rarely, one that comes when all is over."""

    async def read_all() -> None:
        log = Log(RESPONSE)
        early = [asyncio.create_task(followed(log, pauses=number)) for number in (0, 7)]
        await turn()
        for event in (e.Created(RESPONSE), e.InProgress(RESPONSE)):
            log.append(event)
        log.append(e.OutputItemAdded(0, o.OutputMessage("msg_0", "final_answer")))
        log.append(e.ContentPartAdded("msg_0", 0, 0, o.OutputText()))
        log.wake()
        deltas = log.grow(DELTA)
        for number in range(40):
            deltas.pieces.append(b"%d " % number)
            log.wake()
            await turn()
        log.append(e.OutputTextDone("msg_0", 0, 0, text_of(log)))
        log.close()
        often, rarely, late = [*await asyncio.gather(*early), await followed(log)]
        assert b"".join(often) == b"".join(rarely) == b"".join(late)
        assert numbers(b"".join(late)) == list(range(45))
        assert len(often) > len(rarely) > len(late) == 1

    asyncio.run(read_all())


def test_numbers_and_texts_stay_right_in_a_very_long_text() -> None:
    """20,000 deltas: in one taking, in several, and one by one at the end."""
    log = opened()
    cursor, deltas = Cursor(log), log.grow(DELTA)
    deltas.pieces += [b"%d " % number for number in range(16_370)]
    taken = cursor.take()
    deltas.pieces += [b"%d " % number for number in range(16_370, 19_980)]
    taken += cursor.take()
    for number in range(19_980, 20_000):
        deltas.pieces.append(b"%d " % number)
        taken += cursor.take()
    assert taken == Cursor(log).take()
    events = parsed(taken)
    assert [event["sequence_number"] for event in events] == list(range(20_004))
    assert [event["delta"] for event in events[4:]] == [f"{number} " for number in range(20_000)]
    assert numbers(Cursor(log, after=16_380).take()) == list(range(16_381, 20_004))
