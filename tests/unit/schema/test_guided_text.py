"""The check of guided text, byte by byte, against a judge that reads the whole value.

Budget: 8 s on one core.
"""

from __future__ import annotations

import json
import re
import sys
import time
from functools import cache
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import random_schemas as r
from tests.support.schema_judge import valid
from trt_responses.schema.compile import Form, Forms
from trt_responses.schema.matching import BLANKS

if TYPE_CHECKING:
    from collections.abc import Iterator


@cache
def forms() -> Forms:
    return Forms()


@pytest.fixture(scope="module", autouse=True)
def let_go_of_the_forms() -> Iterator[None]:
    """Sixty-four of them take 30 MB."""
    yield
    forms.cache_clear()


def form(schema: r.Json) -> Form:
    return forms().form(schema, "schema", strict=False)


ANY = form({})


def follows(schema: r.Json, text: str | bytes) -> bool:
    """Whether the text is whole and lawful, fed byte by byte."""
    check = form(schema).follow()
    data = text.encode() if isinstance(text, str) else text
    taken = all(check.feed(bytes((byte,))) for byte in data)
    return taken and check.whole and check.departure() is None


@pytest.mark.parametrize("seed", range(150))
def test_it_takes_what_the_judge_takes_and_nothing_else(seed: int) -> None:
    random = Random(seed)
    schema = r.schema(random)
    verdicts = set()
    for _ in range(40):
        value = r.value(random, schema, schema)
        text = r.written(random, value)
        verdict = valid(value, schema, schema)
        assert follows(schema, text) == verdict, text
        verdicts.add(verdict)
    assert verdicts


def test_both_verdicts_are_common() -> None:
    """Or the test above would show little."""
    count = {True: 0, False: 0}
    for seed in range(50):
        random = Random(seed)
        schema = r.schema(random)
        for _ in range(20):
            count[valid(r.value(random, schema, schema), schema, schema)] += 1
    assert min(count.values()) > 100


@pytest.mark.parametrize("seed", range(20))
def test_every_beginning_of_a_lawful_text_goes_on_and_is_not_whole(seed: int) -> None:
    random = Random(seed)
    schema = r.schema(random)
    found = form(schema)
    for _ in range(20):
        value = r.value(random, schema, schema)
        if valid(value, schema, schema):
            check = found.follow()
            for byte in json.dumps(value).encode():
                assert not check.whole
                assert check.feed(bytes((byte,)))
            assert check.whole


TEXTS = st.text(max_size=6)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
unhurried = settings(max_examples=60)


def is_json(text: bytes | bytearray) -> bool:
    try:
        json.loads(text.decode("utf-8", "replace"))
    except ValueError:
        return False
    return True


@unhurried
@given(JSON_VALUES, st.booleans())
def test_any_json_is_taken_where_anything_is_allowed(value: Any, ascii_only: bool) -> None:
    check = ANY.follow()
    assert check.feed(json.dumps(value, ensure_ascii=ascii_only).encode())
    assert check.whole


@unhurried
@given(st.binary(max_size=12))
def test_what_it_calls_whole_is_json(data: bytes) -> None:
    check = ANY.follow()
    for byte in data:
        if not check.feed(bytes((byte,))):
            return
        if check.whole:
            assert is_json(check.text)


@unhurried
@given(JSON_VALUES, st.integers(0, 10**6), st.integers(0, 255))
def test_a_changed_byte_is_seen_or_leaves_json(value: Any, place: int, byte: int) -> None:
    text = bytearray(json.dumps(value), "utf-8")
    text[place % len(text)] = byte
    check = ANY.follow()
    if check.feed(bytes(text)) and check.whole:
        assert is_json(text)


@unhurried
@given(JSON_VALUES, st.lists(st.integers(0, 60)))
def test_where_the_text_is_cut_changes_nothing(value: Any, cuts: list[int]) -> None:
    text = json.dumps(value).encode()
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    check = ANY.follow()
    assert all(check.feed(text[a:b]) for a, b in pairwise(edges))
    assert check.whole


@pytest.mark.parametrize(
    "text",
    [
        *("01", "1.", ".5", "+1", "1e", "1e+", "-", "--1", "0x1", "1_0", "NaN", "Infinity"),
        *('"a', '"\\x"', '"\\u12g4"', '"a\nb"', "'a'", '"\\ud800"', '"\\udc00\\ud800"'),
        *("[1,]", "[,1]", "[1 2]", '{"a"}', '{"a":}', '{a:1}', '{"a":1,}', "{,}", "[}", "]"),
        *("nul", "True", "nulll", " 1", "1 ", "[1]]", "{}{}", "", "//", "1e" + "9" * 30),
    ],
)  # fmt: skip
def test_what_is_no_json_is_not_taken(text: str) -> None:
    assert not follows({}, text)


def test_a_departing_piece_is_not_taken_at_all() -> None:
    check = form({"type": "object"}).follow()
    assert check.feed(b'{"a":')
    assert not check.feed(b"1,2")
    assert bytes(check.text) == b'{"a":'
    assert check.feed(b"1}")
    assert check.whole


def test_blanks_between_marks_are_bounded() -> None:
    for count, lawful in ((1, True), (BLANKS, True), (BLANKS + 1, False)):
        blank = " " * count
        assert follows({}, f'{{"a":{blank}1}}') == lawful
        assert follows({}, f"[1{blank},2]") == lawful
        assert follows({}, f"[{blank}]") == lawful
        assert follows({}, f'{{"a"{blank}:1,"b":2}}') == lawful
    assert not follows({}, " {}")
    assert not follows({}, "{} ")


def test_bad_utf_8_counts_as_the_client_sees_it() -> None:
    schema = {"type": "string", "maxLength": 2}
    assert follows(schema, b'"\xe7a"')
    assert not follows(schema, b'"\xe7ab"')


def test_a_listed_name_comes_once_and_another_as_often_as_it_likes() -> None:
    schema: r.Json = {"type": "object", "properties": {"a": {"type": "null"}}}
    assert not follows(schema, '{"a":null,"a":null}')
    assert not follows(schema, '{"\\u0061":1}')
    assert follows(schema, '{"b":1,"b":2}')


def test_nesting_costs_no_stack() -> None:
    """It is followed at any depth, and judged to be too deep for readers of JSON."""
    depth = 20 * sys.getrecursionlimit()
    check = ANY.follow()
    assert check.feed(b"[" * depth + b"]" * depth)
    assert check.whole
    assert check.departure() is not None


def test_alternatives_do_not_multiply() -> None:
    """Elements that fit two alternatives each leave one reading behind, not 2 to the 400."""
    option = {"type": "object", "properties": {"a": {"type": "integer"}}}
    schema = {"type": "array", "items": {"anyOf": [option, option | {"title": "b"}]}}
    assert follows(schema, "[" + ",".join(['{"a":1}'] * 400) + "]")


def test_a_text_that_can_be_read_in_many_ways_is_followed() -> None:
    """Each bracket may belong to either alternative, until the text tells."""
    either = [{"type": "array", "items": {"$ref": "#"}, "minItems": n} for n in range(2)]
    assert follows({"anyOf": either}, "[" * 12 + "]" * 12)


def test_a_byte_costs_microseconds() -> None:
    """An engine step has a few of them; ten times of what was measured is allowed."""
    check = ANY.follow()
    text = json.dumps([{"name": "x" * 20, "values": [1, 2.5, None]}] * 500).encode()
    begin = time.process_time()
    assert check.feed(text)
    assert (time.process_time() - begin) / len(text) < 15e-6


ESCAPES = st.sampled_from(["\n", "\x01", '"', "\\", "/", "é", "\U0001f642", "a", "u"])


def spelled(character: str, how: int) -> str:
    """A character in one of the ways that JSON has for it."""
    plain = json.dumps(character, ensure_ascii=False)[1:-1]
    units = character.encode("utf-16-be").hex()
    long = "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4))
    return (plain, long, long.upper().replace("U", "u"), long.replace("f", "F"))[how]


@unhurried
@given(st.lists(st.tuples(ESCAPES, st.integers(0, 3)), max_size=6), st.text("a\n\\", max_size=3))
def test_a_word_is_taken_however_each_of_its_characters_is_spelled(
    parts: list[tuple[str, int]], other: str
) -> None:
    """llguidance leaves a model the choice, character by character, in values and in names."""
    word = "".join(character for character, _ in parts)
    schema: r.Json = {"type": "object", "properties": {word: {"enum": [word, word + "x"]}}}
    schema |= {"required": [word], "additionalProperties": False}
    text = "".join(spelled(*part) for part in parts)
    assert follows(schema, f'{{"{text}":"{text}"}}')
    assert follows(schema, f'{{"{text}":"{text}x"}}')
    wrong = json.dumps(other)
    assert follows(schema, f'{{"{text}":{wrong}}}') == (other == word)
    assert follows(schema, f'{{{wrong}:"{text}"}}') == (other == word)


@pytest.mark.parametrize(
    "text", [r"\U000a", r"\ud83d\Ude42", r"\u00zz", r"\x", "\n", r"\ud83d", "\xff"]
)
def test_what_spells_no_character_is_no_word(text: str) -> None:
    assert not follows({"enum": ["\n", "\U0001f642", "\xff\xff"]}, f'"{text}"')


PATTERNS = (r"^[^b]*b?a{0,9}[^a]+$", r"^\w*\.?[^\w]*$", "^a*[^a-z]{1,200}b*$")


@unhurried
@given(st.sampled_from(PATTERNS), st.lists(st.sampled_from(["a" * 30, "b", "é" * 25, "\n", "."])))
def test_a_pattern_is_followed_a_stretch_at_a_time_as_if_it_were_read_at_once(
    pattern: str, parts: list[str]
) -> None:
    value = "".join(parts)
    lawful = re.fullmatch(pattern[1:-1], value, re.ASCII) is not None
    schema: r.Json = {"type": "string", "pattern": pattern}
    for ascii_only in (True, False):
        assert follows(schema, json.dumps(value, ensure_ascii=ascii_only)) == lawful


HOSTILE: dict[str, tuple[r.Json, list[str]]] = {
    "patterns": (
        {"anyOf": [{"type": "string", "pattern": f"^{'a*' * 60}b{{0,{n}}}$"} for n in range(32)]},
        ['"', *["a" * 100] * 30, '"'],
    ),
    "ways": (
        {"anyOf": [{"type": "string", "pattern": f"^[ab]*a[ab]{{{n + 400}}}$"} for n in range(9)]},
        ['"', *["".join(Random(n).choices("ab", k=100)) for n in range(8)]],
    ),
    "readings": (
        {"anyOf": [{"type": "array", "items": {"enum": [n, "x" * 50]}} for n in range(64)]},
        ["[", '"', "x" * 50],
    ),
    "members": (
        {"type": "object", "properties": {f"n{n}": {"type": "null"} for n in range(390)}},
        ["{", *(f'"n{n}":null,' for n in range(20))],
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_step_of_an_engine_is_held_up_by_a_hostile_schema(name: str) -> None:
    """The patterns took 2 s, all at the closing quote; ten times what was measured is allowed."""
    schema, pieces = HOSTILE[name]
    check = form(schema).follow()
    for piece in pieces:
        begin = time.thread_time()
        assert check.feed(piece.encode())
        assert time.thread_time() - begin < 0.25


READINGS: dict[str, tuple[r.Json, str]] = {
    "nested": (
        {"anyOf": [{"type": "object", "properties": {"a": {"$ref": "#"}, f"z{n}": {"type": "null"}}}
                   for n in range(100)]},
        '{"a":' * 400,
    ),
    "side by side": (
        {"anyOf": [{"type": "array", "items": {"type": "integer", "minimum": n}, "maxItems": 3000}
                   for n in range(300)]},
        "[" + "1234567," * 1600,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READINGS)
def test_a_text_that_grows_ever_slower_is_given_up(name: str) -> None:
    """The second took 14 s. What is given up is left to the judge of the whole text."""
    schema, text = READINGS[name]
    check = form(schema).follow()
    begin = time.thread_time()
    assert all(check.feed(text[n : n + 2].encode()) for n in range(0, len(text), 2))
    assert time.thread_time() - begin < 5
