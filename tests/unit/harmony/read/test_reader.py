"""The reader, case by case: each way a model breaks Harmony, what is told of it, what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from tests.support.oracle import merge, read_in_chunks, repairs, told
from trt_responses.harmony.read.headers import CACHED, Headers
from trt_responses.harmony.read.reader import MAX_HELD, Reader
from trt_responses.language.fragments import Closed, Opened, Repaired, Scored, Text
from trt_responses.language.reader import Span
from trt_responses.tokens.control import CONTROL
from trt_responses.tokens.pieces import Pieces, advance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.harmony.read.reader import Tables
    from trt_responses.language.fragments import Fragment
    from trt_responses.tokens.vocabulary import Vocabulary

MESSAGE = "<|channel|>final<|message|>"
AGAIN = "<|start|>assistant"
PLAIN = Opened("final", None, None)


def ids_of(vocabulary: Vocabulary, text: str) -> list[int]:
    ids: list[int] = vocabulary.encoding.encode(text, allowed_special="all")
    return ids


def shown(fragments: Sequence[Fragment]) -> list[str]:
    """Fragments in short: `+final`, `+commentary>functions.f:json`, `"text"`, `.`, `~`, `!kind`."""
    return [_shown(fragment) for fragment in merge(fragments)]


def _shown(fragment: Fragment) -> str:
    match fragment:
        case Opened(channel, recipient, content_type):
            to = f">{recipient}" if recipient else ""
            return f"+{channel}{to}" + (f":{content_type}" if content_type else "")
        case Text(pieces) | Scored(pieces):
            return '"' + b"".join(pieces).decode() + '"'
        case Closed(whole):
            return "." if whole else "~"
        case Repaired(kind):
            return f"!{kind}"


WHOLE = [
    ("<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>",
     '+analysis "Hm" . +final "Hi" .'),
    ("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
     "+commentary>functions.f:json \"{}\" ."),
    (" to=functions.f<|channel|>commentary<|constrain|>json<|message|>{}<|call|>",
     "+commentary>functions.f:json \"{}\" ."),
    ("<|channel|>analysis to=functions.f<|message|>{}<|call|>", "+analysis>functions.f \"{}\" ."),
    ("<|channel|>analysis to=python code<|message|>1<|call|>", '+analysis>python:code "1" .'),
    ("<|channel|>commentary to=functions.web-browsing <|constrain|>json<|message|>{}<|call|>",
     "+commentary>functions.web-browsing:json \"{}\" ."),
    ("<|channel|>commentary\u00a0to=functions.f <|constrain|>json\u202f<|message|>{}<|call|>",
     "+commentary>functions.f:json \"{}\" ."),
    (" to=functions.f\u3000<|channel|>commentary<|message|>{}<|call|>",
     "+commentary>functions.f \"{}\" ."),
    ("<|message|>Hi<|end|>", '+None "Hi" .'),
    ("assistant<|channel|>final<|message|>Hi<|end|>", '+final "Hi" .'),
    ("<|channel|>final<|message|><|return|>", "+final ."),
    ("<|channel|>final<|message|>a<|start|>b<|channel|>c<|message|><|return|>",
     '+final "a<|start|>b<|channel|>c<|message|>" .'),
]  # fmt: skip
"""What is right, and is told without a repair."""

BROKEN = [
    # headers with known words out of place
    ("<|channel|>final <|constrain|>json<|message|>{}<|end|>",
     "!malformed_header +final:json \"{}\" ."),
    ("<|channel|>commentary json<|message|>{}<|end|>",
     "!malformed_header +commentary:json \"{}\" ."),
    ("<|channel|>commentary to=functions.f to=functions.f<|message|>{}<|call|>",
     "!malformed_header +commentary>functions.f \"{}\" ."),
    (" to=functions.f<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
     "!malformed_header +commentary>functions.f:json \"{}\" ."),
    ("<|channel|>commentary to= functions.f<|message|>{}<|call|>",
     "!malformed_header +commentary>functions.f \"{}\" ."),
    ("<|channel|>commentaryto=functions.f<|message|>{}<|call|>",
     "!malformed_header +commentary>functions.f \"{}\" ."),
    ("<|channel|>commentary to=functions.web-browsing json json<|message|>{}<|call|>",
     "!malformed_header +commentary>functions.web-browsing:json \"{}\" ."),
    ("<|channel|>commentary to=functions.f\u202f<|constrain|>json<|message|>{}<|call|>",
     "!malformed_header +commentary>functions.f:json \"{}\" ."),
    ("<|channel|>commentary?<|message|>Hi<|end|>", '!malformed_header +commentary "Hi" .'),
    ("<|channel|>commentary<|channel|>final<|message|>Hi<|end|>",
     '!malformed_header +final "Hi" .'),
    ("<|channel|>commentary to=functions.f<|channel|>commentary<|message|>{}<|call|>",
     "!malformed_header +commentary>functions.f \"{}\" ."),
    ("<|channel|><|message|>Hi<|end|>", '!malformed_header +None "Hi" .'),
    ("<|channel|> final<|message|>Hi<|end|>", '!malformed_header +final "Hi" .'),
    # words that have no place: the front of the text
    ("<|channel|>final Hello there<|message|> you<|end|>",
     '!malformed_header +final "Hello there you" .'),
    ("<|channel|>final Hello there<|end|>", '!malformed_header +final "Hello there" .'),
    ("<|channel|>final Hello  there\n<|return|>", '!malformed_header +final "Hello  there\\n" .'),
    ("<|channel|>commentary to=functions.f {\"a\":1}<|call|>",
     '!malformed_header +commentary>functions.f "{\\"a\\":1}" .'),
    ("<|channel|>commentary to=functions.f<|call|>", "!malformed_header +commentary>functions.f ."),
    ("<|channel|>analysis<|end|>", "!malformed_header"),
    ("<|channel|>final Oh<|start|>assistant<|channel|>final<|message|>Hi<|end|>",
     '!malformed_header +final "Oh" . +final "Hi" .'),
    # a start too many, or none
    ("<|start|>assistant<|channel|>final<|message|>Hi<|end|>", '!stray_control +final "Hi" .'),
    ("<|channel|>final<|message|>a<|end|><|start|><|channel|>final<|message|>b<|end|>",
     '+final "a" . !malformed_header +final "b" .'),
    ("<|channel|>final<|message|>a<|end|><|channel|>final<|message|>b<|end|>",
     '+final "a" . !malformed_header +final "b" .'),
    ("<|channel|>final<|message|>a<|end|>assistant<|channel|>final<|message|>b<|end|>",
     '+final "a" . !malformed_header +final "b" .'),
    ("<|channel|>analysis<|message|>a<|end|><|start|>final<|message|>b<|end|>",
     '+analysis "a" . !malformed_header +final "b" .'),
    ("<|channel|>analysis<|message|>a<|end|><|start|>assistantfinal<|message|>b<|end|>",
     '+analysis "a" . !malformed_header +final "b" .'),
    ("assistantassistant<|channel|>final<|message|>b<|end|>", '!malformed_header +final "b" .'),
    ("<|channel|>final<|message|>a<|end|><|start|>assistantassistant<|channel|>final<|message|>b<|end|>",
     '+final "a" . !malformed_header +final "b" .'),
    ("<|channel|>final<|message|>a<|end|><|message|>b<|end|>",
     '+final "a" . !malformed_header +None "b" .'),
    # text where a header must begin
    ("Hello there<|return|>", '!stray_text +final "Hello there" .'),
    ("Hello there<|end|>", '!stray_text +analysis "Hello there" .'),
    ("Hello there<|call|>", '!stray_text +analysis "Hello there" .'),
    ("Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>",
     '!stray_text +analysis "Hm." . +commentary>functions.f "{}" .'),
    ("Hm.<|channel|>final<|message|>Hi<|return|>",
     '!stray_text +analysis "Hm." . !malformed_header +final "Hi" .'),
    ("<|channel|>analysis Hm.<|channel|>final<|message|>Hi<|return|>",
     '!malformed_header +analysis "Hm." . !malformed_header +final "Hi" .'),
    ("Hm<|message|>.<|end|>", '!malformed_header +analysis "Hm." .'),
    ("Hm<|message|>.<|start|>assistant<|channel|>final<|message|>Hi<|return|>",
     '!malformed_header +analysis "Hm." . +final "Hi" .'),
    ("Hi<|message|>!<|return|>", '!malformed_header +final "Hi!" .'),
    ("final answer: to=5<|return|>", '!stray_text +final "final answer: to=5" .'),
    ("<|channel|>final<|message|>a<|end|> and b<|return|>",
     '+final "a" . !stray_text +final " and b" .'),
    ("<|channel|>final<|message|>a<|end|>b<|start|>assistant<|channel|>final<|message|>c<|end|>",
     '+final "a" . !stray_text +analysis "b" . +final "c" .'),
    ("<|channel|>final<|message|>a<|end|>\n<|start|>assistant<|channel|>final<|message|>c<|end|>",
     '+final "a" . !stray_text +final "c" .'),
    # terminators too many
    ("<|channel|>final<|message|>a<|end|><|return|>", '+final "a" . !stray_control'),
    ("<|channel|>final<|message|>a<|end|><|call|>", '+final "a" . !stray_control'),
    ("<|channel|>final<|message|>a<|end|><|end|><|start|>assistant<|channel|>final<|message|>b<|end|>",
     '+final "a" . !stray_control +final "b" .'),
    ("<|return|>", "!stray_control"),
    ("<|start|><|end|>", "!stray_control !stray_control"),
]  # fmt: skip

FOREIGN = [
    "<|start|>user<|message|>And now?<|end|>",
    "<|start|>functions.f to=assistant<|channel|>commentary<|message|>4<|end|>",
    "<|start|>functions.f<|channel|>commentary<|message|>4<|end|>",
    "<|start|>system<|message|>Obey<|end|>",
    "<|start|>assistant<|start|>user<|message|>x<|end|>",
    "<|start|>user hello<|end|>",
    "user<|message|>And now?<|end|>",
    "functions.f to=assistant<|channel|>commentary<|message|>4<|end|>",
]


@pytest.mark.parametrize(("written", "expected"), [*WHOLE, *BROKEN])
@pytest.mark.parametrize("size", [1, 1000])
def test_what_is_written_is_told(
    vocabulary: Vocabulary, tables: Tables, written: str, expected: str, size: int
) -> None:
    ids = ids_of(vocabulary, written)
    chunks = [ids[at : at + size] for at in range(0, len(ids), size)]
    fragments, reader = read_in_chunks(tables, chunks, stopped=True)
    assert " ".join(shown(fragments)) == expected
    assert reader.kept == ids
    assert reader.ended == (ids[-1] != CONTROL.end)


@pytest.mark.parametrize("written", FOREIGN)
@pytest.mark.parametrize("cut", [False, True])
def test_a_foreign_author_ends_the_generation_and_nothing_of_it_is_kept(
    vocabulary: Vocabulary, tables: Tables, written: str, cut: bool
) -> None:
    before = ids_of(vocabulary, "<|channel|>final<|message|>Hi<|end|>")
    foreign = ids_of(vocabulary, written)
    if cut and written.startswith("<|start|>u"):
        foreign = foreign[:2]
    fragments, reader = read_in_chunks(tables, [before, foreign], stopped=not cut)
    assert [m.text for m in told(fragments)] == ["Hi"]
    assert repairs(fragments)[-1] == "foreign_author"
    assert reader.ended
    assert reader.kept[: len(before)] == before
    assert ids_of(vocabulary, "user")[0] not in reader.kept
    assert reader.feed(before) == []


CUT = [
    # written, what is told when cut, what is told when the engine stopped of itself
    ("", "", "!cut_header"),
    ("<|channel|>", "!cut_header", "!cut_header"),
    ("<|channel|>final", "!cut_header", "!cut_header"),
    (
        "<|channel|>final Hello",
        "!cut_header",
        '!cut_header +final "Hello" !missing_terminator .',
    ),
    ("<|channel|>commentary to=functions.f <|constrain|>js", "!cut_header", "!cut_header"),
    ("Hello there", '!stray_text +analysis "Hello there" ~',
     '!stray_text +final "Hello there" !missing_terminator .'),
    ("<|channel|>final<|message|>Hi", '+final "Hi" ~', '+final "Hi" !missing_terminator .'),
    ("<|channel|>final<|message|>", "+final ~", "+final !missing_terminator ."),
    ("<|channel|>final<|message|>a<|end|>", '+final "a" .', '+final "a" .'),
    ("<|channel|>final<|message|>a<|end|><|start|>", '+final "a" . !cut_header',
     '+final "a" . !cut_header'),
    ("<|channel|>final<|message|>a<|end|>b", '+final "a" . !stray_text +analysis "b" ~',
     '+final "a" . !stray_text +final "b" !missing_terminator .'),
]  # fmt: skip


@pytest.mark.parametrize(("written", "cut", "stopped"), CUT)
def test_the_end_of_the_output_is_told_wherever_it_falls(
    vocabulary: Vocabulary, tables: Tables, written: str, cut: str, stopped: str
) -> None:
    ids = ids_of(vocabulary, written)
    for natural, expected in ((False, cut), (True, stopped)):
        fragments, reader = read_in_chunks(tables, [ids], stopped=natural)
        assert " ".join(shown(fragments)) == expected
        assert reader.kept == ids
        assert not reader.ended
        assert reader.finish(stopped=natural) == []
        assert reader.feed(ids) == []


def test_an_author_cut_inside_the_word_is_not_another_author(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    ids = ids_of(vocabulary, f"{MESSAGE}a<|end|><|start|>ass")
    fragments, _ = read_in_chunks(tables, [ids], stopped=False)
    assert repairs(fragments) == ["cut_header"]


def test_a_header_that_never_ends_becomes_text_after_64_ids(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    words = "".join(f" {n} 🦙" for n in range(60))
    reader = Reader(tables)
    fragments: list[Fragment] = []
    for at, token_id in enumerate(ids_of(vocabulary, f"<|channel|>final{words}")):
        fragments += reader.feed([token_id])
        assert bool(fragments) == (at >= 64)
    fragments, _ = read_in_chunks(
        tables, [ids_of(vocabulary, f"<|channel|>analysis{words}<|end|>")], stopped=True
    )
    (message,) = told(fragments)
    assert message.opened.channel == "analysis"
    assert message.text == words.lstrip()
    assert repairs(fragments) == ["malformed_header"]


ENDINGS = {
    "": "final",  # the engine stops
    "<|return|>": "final",
    "<|end|>": "analysis",
    "<|call|>": "analysis",
    f"{AGAIN}{MESSAGE}Hi<|return|>": "analysis",
    f"{MESSAGE}Hi<|return|>": "analysis",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_long_text_without_a_header_is_held_until_its_end_shows_what_it_is(
    vocabulary: Vocabulary, tables: Tables, ending: str
) -> None:
    words = "".join(f" {n} 🦙" for n in range(100))
    reader = Reader(tables)
    fragments = [f for i in ids_of(vocabulary, words) for f in reader.feed([i])]
    assert fragments == [Repaired("stray_text")]
    fragments += reader.feed(ids_of(vocabulary, ending)) + reader.finish(stopped=True)
    first, *others = told(fragments)
    assert (first.opened.channel, first.text) == (ENDINGS[ending], words)
    assert [other.text for other in others] == ["Hi"] * ("Hi" in ending)
    assert reader.messages[0].content_tokens == len(ids_of(vocabulary, words))


def test_a_text_without_a_header_is_not_held_without_a_bound(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    (word,) = ids_of(vocabulary, " word")
    reader = Reader(tables)
    assert reader.feed([word] * MAX_HELD) == [Repaired("stray_text")]
    opened, *texts = merge(reader.feed([word] * 5) + reader.feed([word] * 5))
    assert opened == Opened("analysis", None, None)
    assert texts == [Text([b" word" * (MAX_HELD + 10)])]
    assert reader.clear
    reader.feed([CONTROL.return_])
    assert reader.ended


@pytest.mark.parametrize("bad", [-1, -200_000, 201_088, 201_089, 2**31, 2**64, -(2**64)])
def test_an_id_outside_the_vocabulary_is_counted_and_leaves_no_trace(
    vocabulary: Vocabulary, tables: Tables, bad: int
) -> None:
    ids = ids_of(vocabulary, f"{MESSAGE}Hi 🦙🪿<|end|>{AGAIN}{MESSAGE}x<|return|>")
    clean, _ = read_in_chunks(tables, [ids], stopped=True)
    for at in range(len(ids)):
        fragments, reader = read_in_chunks(tables, [[*ids[:at], bad, *ids[at:]]], stopped=True)
        assert repairs(fragments) == ["undecodable"]
        assert merge(f for f in fragments if not isinstance(f, Repaired)) == merge(clean)
        assert reader.kept == ids


def test_ids_after_the_end_are_discarded_unfed(vocabulary: Vocabulary, tables: Tables) -> None:
    ids = ids_of(vocabulary, f"{MESSAGE}Hi<|return|>")
    reader = Reader(tables)
    assert reader.feed([*ids, *ids, -5])
    assert reader.ended
    assert reader.kept == ids
    assert reader.feed(ids) == []
    assert reader.finish(stopped=False) == []


def test_spans_hold_each_messages_own_ids_and_its_content_tokens(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    first = ids_of(vocabulary, "<|channel|>analysis<|message|>Think twice.<|end|>")
    second = ids_of(
        vocabulary,
        f"{AGAIN}<|channel|>commentary to=functions.f <|constrain|>json<|message|>{{}}<|call|>",
    )
    _, reader = read_in_chunks(tables, [first + second], stopped=True)
    thought, call = reader.messages
    assert thought == Span(0, 3, len(first), "analysis", None, None, False, CONTROL.end)
    assert thought.content_tokens == len(ids_of(vocabulary, "Think twice."))
    assert reader.kept[call.start : call.end] == second
    assert (call.channel, call.recipient, call.content_type) == (
        "commentary",
        "functions.f",
        "json",
    )
    assert (call.repaired, call.terminator, call.content_tokens) == (False, CONTROL.call, 1)


def test_a_repaired_message_and_only_that_is_marked_so(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    written = f"<|channel|>final?<|message|>a<|end|>{AGAIN}{MESSAGE}b<|end|> c<|return|>"
    _, reader = read_in_chunks(tables, [ids_of(vocabulary, written)], stopped=True)
    assert [span.repaired for span in reader.messages] == [True, False, True]
    assert [span.content_tokens for span in reader.messages] == [1, 1, 1]


def test_control_ids_told_as_text_are_never_to_be_read_back_as_ids(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    written = f"{MESSAGE}a<|start|>user<|message|>b<|end|>"
    _, reader = read_in_chunks(tables, [ids_of(vocabulary, written)], stopped=True)
    assert [span.repaired for span in reader.messages] == [True]


def test_a_chunk_of_plain_text_is_one_text_with_a_piece_for_each_id(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    reader = Reader(tables)
    reader.feed(ids_of(vocabulary, MESSAGE))
    ids = ids_of(vocabulary, 'She said "no"\n\tand left\\ \x01')
    (text,) = reader.feed(ids)
    assert isinstance(text, Text)
    assert len(text.pieces) == len(ids)
    assert orjson.loads(b'"' + b"".join(text.pieces) + b'"') == 'She said "no"\n\tand left\\ \x01'
    assert reader.feed([]) == []
    assert reader.feed([ids[0]]) == [Text([tables.pieces.plain[ids[0]]])]


def test_pieces_say_what_their_ids_say_and_lack_only_partial_characters_and_control_ids(
    vocabulary: Vocabulary,
) -> None:
    pieces = Pieces(vocabulary)
    decode = vocabulary.encoding.decode_utf8
    assert len(pieces.plain) == 198_436
    for token_id in (*range(0, 199_998, 7), *range(199_000, 201_100)):
        piece = pieces.plain.get(token_id)
        if piece is not None:
            assert orjson.loads(b'"' + piece + b'"') == decode([token_id])


ADVANCE = [
    (b"ab", b"ab", b""),
    (b"a\xe2\x82", b"a", b"\xe2\x82"),
    (b"\xe2\x82\xac", "€".encode(), b""),
    (b"\xe2\x82(", "�".encode(), b"("),  # what follows bad bytes waits unseen
    (b"a\xff\xfeb", "a�".encode(), b"\xfeb"),
    (b'"\xf0', b'\\"', b"\xf0"),
    (b"\xed\xa0\x80", "�".encode(), b"\xa0\x80"),
]


@pytest.mark.parametrize(("waiting", "piece", "rest"), ADVANCE)
def test_bytes_that_are_no_text_yet_wait_as_openai_harmony_has_them_wait(
    waiting: bytes, piece: bytes, rest: bytes
) -> None:
    assert advance(waiting) == (piece, rest)


def test_bytes_left_at_a_terminator_are_told_as_replacement(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    head = next(i for i, raw in enumerate(vocabulary.token_bytes) if raw == b"\xe2")
    ids = [*ids_of(vocabulary, f"{MESSAGE}a"), head, CONTROL.end]
    fragments, _ = read_in_chunks(tables, [ids], stopped=True)
    assert [message.text for message in told(fragments)] == ["a\ufffd"]


def test_a_header_is_parsed_once_and_the_cache_is_bounded(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    headers = Headers(tables.pieces, vocabulary.encoding)
    ids = ids_of(vocabulary, "<|channel|>final")
    first = headers.read(ids, "given", closed=True)
    for number in range(CACHED - 1):
        headers.read([number], "given", closed=False)
    assert headers.read(ids, "given", closed=True) is first
    headers.read([CACHED], "given", closed=False)
    assert headers.read(ids, "given", closed=True) is not first
