"""Texts in pieces: escapes, split characters, bytes that are no text, limits of the matcher."""

from __future__ import annotations

import json
from random import Random

import pytest

from tests.support.schemas import form, verdict
from trt_responses.schema.follow import canonical_escapes, path_of

ESCAPES = r'{"a":"\u00e9\/\"\\\n\u000A\ud83d\ude00\u0022\u005c\u007F\\u00e9"}'


@pytest.mark.parametrize("size", range(1, 12))
def test_escapes_are_one_however_they_are_cut(size: int) -> None:
    held, made = b"", b""
    raw = ESCAPES.encode()
    for begin in range(0, len(raw), size):
        piece, held = canonical_escapes(held + raw[begin : begin + size])
        made += piece
    assert held == b""
    assert json.loads(made) == json.loads(raw)
    assert (
        made == rb'{"a":"' + "é/".encode() + rb"\"\\\n\n" + "😀".encode() + rb'\"\\\u007f\\u00e9"}'
    )


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(
    "text", [ESCAPES, '{"a":"é😀中"}', '{ "a" :\t"x"\n}', '{"a":"\x7f\u0080"}']
)
def test_any_cut_of_a_text_is_followed_alike(text: str, size: int) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    expected = "followed"
    assert verdict(form(schema), text, size) == expected


def test_a_lone_half_of_a_character_is_no_text() -> None:
    found = form({"type": "string"})
    assert verdict(found, r'"\ud83d"') == verdict(found, r'"\ud83dx"') == "departed"
    assert verdict(found, r'"\ude00"') == "departed"
    assert verdict(found, r'"\ud83d') == "cut"


def test_bytes_that_are_no_text_are_judged_as_the_client_reads_them() -> None:
    follower = form({"type": "string", "maxLength": 3}).follow()
    assert all(follower.feed(piece) for piece in (b'"', b"\xe8\xa3", b"c", b"\xff", b'"'))
    assert follower.whole
    assert follower.departure() is None


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", ()),
        ("{", ()),
        ('{"a', ()),
        ('{"a"', ("a",)),
        ('{"a":[1,{"b]{\\"":"x, {', ("a", 1, 'b]{\\"')),
        ('{"a":{"b":1},"c":[[],[2', ("c", 1, 0)),
        ('{"a":{"b":1},', ()),
        ("[1,2]", ()),
    ],
)
def test_the_place_where_a_text_ends_is_known(text: str, path: tuple[str | int, ...]) -> None:
    assert path_of(text.encode()) == path


def test_what_departs_is_not_taken() -> None:
    follower = form({"type": "integer"}).follow()
    assert follower.feed(b"1")
    assert not follower.feed(b"2x3")
    assert bytes(follower.text) == b"1"


def test_white_space_between_marks_is_bounded() -> None:
    found = form({"type": "array", "items": {"type": "integer"}})
    assert verdict(found, "[" + " " * 32 + "1 ,\n2]") == "followed"
    assert verdict(found, "[" + " " * 33 + "1]") == "departed"
    assert verdict(found, " [1]") == "departed"


def test_random_texts_of_random_escapes_are_followed_as_they_are_read() -> None:
    random = Random(3)
    found = form({"type": "string"})
    for _ in range(300):
        value = "".join(random.choice('aé\\"/\n\t\x00\x1f😀\u2028') for _ in range(8))
        written = json.dumps(value, ensure_ascii=random.random() < 0.5)
        assert verdict(found, written, random.randint(1, 5)) == "followed"
