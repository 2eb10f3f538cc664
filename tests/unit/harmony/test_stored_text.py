"""What ids say of an item's text: exactly its JSON, or nothing that could be taken for it."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.oracle import is_text
from trt_responses.harmony.stored_text import Spelled
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID
from trt_responses.tokens.pieces import Pieces
from trt_responses.tokens.vocabulary import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.tokens.vocabulary import Vocabulary

HEADER = "<|start|>assistant<|channel|>final<|message|>"
VOCABULARY = load()
SPELLED = Spelled(VOCABULARY, Pieces(VOCABULARY))
PARTS = [n for n, raw in enumerate(VOCABULARY.token_bytes) if max(raw) > 127 and len(raw) < 3]
LINES = VOCABULARY.token_bytes.index(b"\x95\n\n")  # the end of a character, and of a paragraph
HALF = [VOCABULARY.token_bytes.index(bytes([byte])) for byte in "\u9f15".encode()[:-1]]


def message(body: Sequence[int], vocabulary: Vocabulary = VOCABULARY) -> bytes:
    header = vocabulary.encoding.encode(HEADER, allowed_special="all")
    return array("I", [*header, *body, CONTROL.end]).tobytes()


@settings(max_examples=200)
@given(st.text(st.characters(exclude_categories=["Cs"])))
@example('say "hi"\\\n\t\0\x1f\x7f\u2028')
@example("灯台守は正午に 👩‍🚀🇳🇴 é e\u0301 \U0010ffff")
def test_a_texts_ids_say_its_json_letter_for_letter(text: str) -> None:
    body = VOCABULARY.encoding.encode(text, disallowed_special=())
    assert b'"%b"' % SPELLED(message(body)) == orjson.dumps(text)


@settings(max_examples=100)
@given(st.lists(st.sampled_from(PARTS) | st.integers(0, FIRST_CONTROL_ID - 1), max_size=8))
@example([*HALF, LINES])
def test_any_ids_say_the_json_of_their_text_or_what_is_no_json(body: list[int]) -> None:
    said = SPELLED(message(body))
    raw = b"".join(VOCABULARY.token_bytes[token_id] for token_id in body)
    assert (b'"%b"' % said == orjson.dumps(raw.decode("utf-8", "replace"))) == is_text(raw)


@pytest.mark.parametrize(
    "ids",
    [
        b"",
        b"\1\2\3",
        message([1, 2, 3])[:-1],
        array("I", [1, 2, 3]).tobytes(),
        array("I", [CONTROL.message]).tobytes(),
        message([1, CONTROL.start, 2]),
        message([FIRST_CONTROL_ID]),
        message([2**32 - 1]),
    ],
    ids=["none", "too short", "cut", "no header", "no body", "control", "spare", "huge"],
)
def test_what_is_no_message_of_ordinary_ids_says_nothing(ids: bytes) -> None:
    assert SPELLED(ids) == b""
