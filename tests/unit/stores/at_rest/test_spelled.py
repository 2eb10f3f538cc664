"""What ids say of an item's text: exactly its JSON, or nothing that could be taken for it."""

from __future__ import annotations

from array import array
from functools import cache
from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.oracle import is_text
from tests.support.tokens import vocabulary
from trt_responses.backends.dialects import spelled
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


HEADER = "<|start|>assistant<|channel|>final<|message|>"


@cache
def parts() -> list[int]:
    return [n for n, raw in enumerate(vocabulary().token_bytes) if max(raw) > 127 and len(raw) < 3]


def message(body: Sequence[int]) -> bytes:
    header = vocabulary().encoding.encode(HEADER, allowed_special="all")
    return array("I", [*header, *body, CONTROL.end]).tobytes()


@settings(max_examples=200)
@given(st.text(st.characters(exclude_categories=["Cs"])))
@example('say "hi"\\\n\t\0\x1f\x7f\u2028')
@example("灯台守は正午に 👩‍🚀🇳🇴 é e\u0301 \U0010ffff")
def test_a_texts_ids_say_its_json_letter_for_letter(text: str) -> None:
    body = vocabulary().encoding.encode(text, disallowed_special=())
    assert b'"%b"' % spelled()(message(body)) == orjson.dumps(text)


@settings(max_examples=100)
@given(
    st.lists(
        st.deferred(lambda: st.sampled_from(parts())) | st.integers(0, FIRST_CONTROL_ID - 1),
        max_size=8,
    )
)
def test_any_ids_say_the_json_of_their_text_or_what_is_no_json(body: list[int]) -> None:
    assert_json_or_none(body)


def test_half_a_character_before_the_end_of_another_and_of_a_paragraph_is_no_json() -> None:
    half = [bytes([byte]) for byte in "\u9f15".encode()[:-1]]
    assert_json_or_none([vocabulary().token_bytes.index(raw) for raw in (*half, b"\x95\n\n")])


def assert_json_or_none(body: list[int]) -> None:
    said = spelled()(message(body))
    raw = b"".join(vocabulary().token_bytes[token_id] for token_id in body)
    assert (b'"%b"' % said == orjson.dumps(raw.decode("utf-8", "replace"))) == is_text(raw)


@pytest.mark.parametrize(
    "ids",
    [
        lambda: b"",
        lambda: b"\1\2\3",
        lambda: message([1, 2, 3])[:-1],
        lambda: array("I", [1, 2, 3]).tobytes(),
        lambda: array("I", [CONTROL.message]).tobytes(),
        lambda: message([1, CONTROL.start, 2]),
        lambda: message([FIRST_CONTROL_ID]),
        lambda: message([2**32 - 1]),
    ],
    ids=["none", "too short", "cut", "no header", "no body", "control", "spare", "huge"],
)
def test_what_is_no_message_of_ordinary_ids_says_nothing(ids: Callable[[], bytes]) -> None:
    assert spelled()(ids()) == b""
