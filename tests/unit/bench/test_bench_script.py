"""The benchmark's own ground: its script, its floor, and the check that goes before any time.

Budget: 5 s in all. Nothing here is timed.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from bench import asgi, check, client, floor
from bench.asks import CHAT_BODY
from bench.ours import Playing
from bench.script import CHUNKS, LENGTHS, Script, pieces, script
from bench.timing import Repeats, ratio
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID

if TYPE_CHECKING:
    from trt_responses.tokens.vocabulary import Vocabulary

CONTROL_IDS = 10
"""Of the two headers and the two terminators, the words of the headers included."""


@pytest.fixture(scope="module")
def words(vocabulary: Vocabulary) -> Script:
    return script(vocabulary, LENGTHS[0])


def floor_stream(vocabulary: Vocabulary, words: Script, chunk: int = 1) -> bytes:
    app = floor.floor(vocabulary, words, chunk)
    return asyncio.run(asgi.stream_of(app, b"{}"))


@pytest.mark.parametrize("length", LENGTHS)
def test_a_script_has_the_tokens_it_promises_and_its_texts_are_theirs(
    vocabulary: Vocabulary, length: int
) -> None:
    words = script(vocabulary, length)
    assert len(words) == 64 + length + CONTROL_IDS
    assert words == script(vocabulary, length)
    starts = [i + 1 for i, x in enumerate(words.token_ids) if x == CONTROL.message]
    for start, text in zip(starts, (words.reasoning, words.answer), strict=True):
        ids = []
        for token_id in words.token_ids[start:]:
            if token_id >= FIRST_CONTROL_ID:
                break
            ids.append(token_id)
        assert b"".join(vocabulary.token_bytes[i] for i in ids).decode() == text
        assert "".join(pieces(vocabulary, ids)) == text


def test_a_script_holds_ids_that_are_only_part_of_a_character(
    vocabulary: Vocabulary, words: Script
) -> None:
    ids = [i for i in words.token_ids if i < FIRST_CONTROL_ID]
    assert sum(1 for piece in pieces(vocabulary, ids) if not piece) > len(ids) // 50
    assert all(script in words.answer for script in ("灯", "船", "등", "🚩", "```", "**"))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_steps_leave_nothing_out(words: Script, chunk: int) -> None:
    steps = words.steps(chunk)
    assert tuple(i for step in steps for i in step) == words.token_ids
    assert {len(step) for step in steps[:-1]} == {chunk}


@pytest.mark.parametrize("chunk", CHUNKS)
def test_the_floor_tells_the_script_in_as_many_sends_as_there_are_steps(
    vocabulary: Vocabulary, words: Script, chunk: int
) -> None:
    told = check.seen(floor_stream(vocabulary, words, chunk), words, whole=False)
    assert told.deltas == told.events > 400
    assert len(floor.frames(vocabulary, words, chunk)) == len(words.steps(chunk))


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        (lambda blocks: blocks[:9] + blocks[10:], "deltas"),
        (lambda blocks: [*blocks[:9], blocks[10], blocks[9], *blocks[11:]], "deltas"),
        (lambda blocks: [blocks[0].replace(b"event: r", b"event: R"), *blocks[1:]], "name"),
        (lambda blocks: blocks[:-2] + blocks[-1:], "DONE"),
    ],
    ids=["a lost delta", "two deltas swapped", "a wrong event name", "no end"],
)  # fmt: skip
def test_a_wrong_stream_is_void(
    vocabulary: Vocabulary, words: Script, harm: object, complaint: str
) -> None:
    blocks = floor_stream(vocabulary, words).split(b"\n\n")
    assert callable(harm)
    with pytest.raises(check.Wrong, match=complaint):
        check.seen(b"\n\n".join(harm(blocks)), words, whole=False)


def test_a_whole_answer_is_asked_for_more_than_its_deltas(
    vocabulary: Vocabulary, words: Script
) -> None:
    with pytest.raises(check.Wrong, match="numbers"):
        check.seen(floor_stream(vocabulary, words), words, whole=True)


def test_a_chat_says_what_the_script_says_or_is_void(words: Script) -> None:
    async def told() -> bytes:
        playing = Playing()
        playing.play(words, 1)
        async with asgi.living(playing.app):
            return await asgi.stream_of(playing.app, CHAT_BODY, asgi.CHAT)

    stream = asyncio.run(told())
    check.check_chat(stream, words)
    with pytest.raises(check.Wrong, match="content of the chat"):
        check.check_chat(stream.replace(b'"content":"', b'"content":"!', 5), words)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_the_client_counts_the_same_events_however_the_bytes_arrive(size: int) -> None:
    frames = [b"event: e%d\ndata: {}\n\n" % n for n in range(20)] + [b"data: [DONE]\n\n"]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames)
    reply = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    counts = read_in_parts(reply, size=max(size, 16), rest=size)
    assert (counts.replies, counts.refused) == (1, 0)
    assert (counts.events, counts.size_bytes) == (len(frames), len(reply))


def test_the_client_tells_a_refusal_from_a_reply() -> None:
    assert read_in_parts(b"HTTP/1.1 429 Too Many Requests\r\n\r\n", size=64, rest=64).refused == 1


def read_in_parts(reply: bytes, *, size: int, rest: int) -> client.Counts:
    """A stream that is given `size` bytes at first, for its status line, and then `rest` a time."""
    counts = client.Counts()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stream = client.Stream(listening.getsockname()[1], 1, counts)
        served, _ = listening.accept()
        with served, stream.connection:
            while reply:
                served.sendall(reply[:size])
                reply, size = reply[size:], rest
                if not stream.read():
                    break
    return counts


def test_a_ratio_compares_neighbours_in_time() -> None:
    """The machine became twice as slow half-way; the contenders did not change."""
    floor_times, our_times = Repeats((1.0, 1.0, 2.0, 2.0)), Repeats((1.5, 1.5, 3.0, 3.0))
    assert ratio(our_times, floor_times) == 1.5
    assert floor_times.spread == 2.0
