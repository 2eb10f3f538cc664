"""The check of guided text, byte by byte, against a judge that reads the whole value.

Budget: 8 s on one core.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import random_schemas as r
from tests.unit.schema_judge import valid
from trt_responses.harmony.jsontext import BLANKS, Check
from trt_responses.harmony.jsonvalue import ANY, spellings
from trt_responses.harmony.schema import Forms

FORMS = Forms()


def follows(schema: r.Json, text: str | bytes) -> bool:
    """Whether the text is whole and lawful, fed byte by byte."""
    check = FORMS.form(schema, "schema").check()
    data = text.encode() if isinstance(text, str) else text
    return all(check.feed(bytes((byte,))) for byte in data) and check.whole


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
    form = FORMS.form(schema, "schema")
    for _ in range(20):
        value = r.value(random, schema, schema)
        if valid(value, schema, schema):
            check = form.check()
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
unhurried = settings(deadline=None, max_examples=60)


@unhurried
@given(JSON_VALUES, st.booleans())
def test_any_json_is_taken_where_anything_is_allowed(value: Any, ascii_only: bool) -> None:
    check = Check(ANY)
    assert check.feed(json.dumps(value, ensure_ascii=ascii_only).encode())
    assert check.whole


@unhurried
@given(st.binary(max_size=12))
def test_what_it_calls_whole_is_json(data: bytes) -> None:
    check = Check(ANY)
    for byte in data:
        if not check.feed(bytes((byte,))):
            return
        if check.whole:
            json.loads(check.text.decode("utf-8", "replace"))


@unhurried
@given(JSON_VALUES, st.integers(0, 10**6), st.integers(0, 255))
def test_a_changed_byte_is_seen_or_leaves_json(value: Any, place: int, byte: int) -> None:
    text = bytearray(json.dumps(value), "utf-8")
    text[place % len(text)] = byte
    check = Check(ANY)
    if check.feed(bytes(text)) and check.whole:
        json.loads(text.decode("utf-8", "replace"))


@unhurried
@given(JSON_VALUES, st.lists(st.integers(0, 60)))
def test_where_the_text_is_cut_changes_nothing(value: Any, cuts: list[int]) -> None:
    text = json.dumps(value).encode()
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    check = Check(ANY)
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
    check = FORMS.form({"type": "object"}, "s").check()
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
    depth = 20 * sys.getrecursionlimit()
    assert follows({}, "[" * depth + "]" * depth)


def test_alternatives_do_not_multiply() -> None:
    """Elements that fit two alternatives each leave one reading behind, not 2 to the 400."""
    option = {"type": "object", "properties": {"a": {"type": "integer"}}}
    schema = {"type": "array", "items": {"anyOf": [option, option | {"title": "b"}]}}
    assert follows(schema, "[" + ",".join(['{"a":1}'] * 400) + "]")


def test_a_byte_costs_microseconds() -> None:
    """An engine step has a few of them; ten times of what was measured is allowed."""
    check = Check(ANY)
    text = json.dumps([{"name": "x" * 20, "values": [1, 2.5, None]}] * 500).encode()
    begin = time.process_time()
    assert check.feed(text)
    assert (time.process_time() - begin) / len(text) < 15e-6


def test_spellings_are_texts_of_the_value() -> None:
    for value in ("é\U0001f642", 'q"\\\n', {"ü": [1, None, True, 2.5]}, 12):
        assert {json.dumps(json.loads(text)) for text in spellings(value)} == {json.dumps(value)}


@pytest.mark.parametrize("spelled", [r"a\nb", r"a\u000ab", r"a\u000Ab"])
def test_a_control_character_is_taken_however_a_guide_writes_it(spelled: str) -> None:
    """llguidance leaves a model the choice, in values and in names."""
    schema: r.Json = {"type": "object", "properties": {"a\nb": {"enum": ["a\nb"]}}}
    schema |= {"required": ["a\nb"], "additionalProperties": False}
    assert follows(schema, f'{{"{spelled}":"{spelled}"}}')
    assert not follows(schema, f'{{"{spelled}":"a b"}}')


def test_a_spelling_is_of_its_value_alone() -> None:
    for value in ("\x7f\n\t", "\\n", "\\u000a", "\U0001f600\x01", '"\\"', "é\x1f"):
        assert {json.loads(text) for text in spellings(value)} == {value}
    assert len(spellings("\\n")) == 1
