"""Sealed turns: what goes in comes out, for its owner and with its keys, and for nobody else."""

from __future__ import annotations

import base64
import os
from array import array
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_responses.errors import InvalidRequest, StartupError
from trt_responses.features.references.digest import digest
from trt_responses.features.seal.sealer import PREFIX, Sealer, key_of, shared_keys
from trt_responses.features.seal.turn import (
    OpenedTurns,
    SealedTurn,
    TurnMessage,
    packed,
    unpacked,
)
from trt_responses.wire import items as i
from trt_responses.wire import output as o

if TYPE_CHECKING:
    from pathlib import Path

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
IDS = array("I", [200006, 1, 2**32 - 1]).tobytes()
TURN = SealedTurn("2026-02-03", (TurnMessage(b"d" * 16, IDS), TurnMessage(b"e" * 16, b"")))

written = st.builds(
    TurnMessage,
    st.binary(min_size=16, max_size=16),
    st.lists(st.integers(0, 2**32 - 1), max_size=40).map(lambda ids: array("I", ids).tobytes()),
)
turns = st.builds(SealedTurn, st.dates().map(str), st.lists(written, max_size=6).map(tuple))


def sealer(*keys: bytes) -> Sealer:
    return Sealer(lambda: keys)


@settings(max_examples=60)
@given(turn=turns, owner=st.text(max_size=8))
def test_a_turn_comes_back_as_it_was(turn: SealedTurn, owner: str) -> None:
    assert unpacked(packed(turn)) == turn
    assert sealer(KEY).open(sealer(KEY).seal(turn, owner), owner, "p") == turn


def test_no_byte_may_be_another() -> None:
    """Every bit of key id, nonce and text counts, and none of the text can be read."""
    blob = sealer(KEY).seal(TURN, "ann")
    raw = bytearray(base64.urlsafe_b64decode(blob[len(PREFIX) :]))
    for place in range(len(raw)):
        raw[place] ^= 1
        changed = PREFIX + base64.urlsafe_b64encode(raw).decode()
        with pytest.raises(InvalidRequest) as caught:
            sealer(KEY).open(changed, "ann", "input[0].encrypted_content")
        assert caught.value.param == "input[0].encrypted_content"
        raw[place] ^= 1
    for length in range(len(blob) - len(PREFIX)):
        with pytest.raises(InvalidRequest):
            sealer(KEY).open(blob[: len(PREFIX) + length], "ann", "p")


@pytest.mark.parametrize("owner", ["", "Ann", "ann ", "bob", "ann\0"])
def test_it_is_its_owners(owner: str) -> None:
    blob = sealer(KEY).seal(TURN, "ann")
    with pytest.raises(InvalidRequest):
        sealer(KEY).open(blob, owner, "p")


def test_the_first_key_seals_and_every_key_opens() -> None:
    old, new = sealer(KEY).seal(TURN, ""), sealer(OTHER, KEY).seal(TURN, "")
    assert sealer(OTHER, KEY).open(old, "", "p") == TURN
    assert sealer(OTHER).open(new, "", "p") == TURN
    for keys, blob in ((OTHER, old), (KEY, new)):
        with pytest.raises(InvalidRequest):
            sealer(keys).open(blob, "", "p")


def test_the_same_turn_is_sealed_otherwise_each_time() -> None:
    numbers = count()
    counting = Sealer(lambda: [KEY], lambda size: next(numbers).to_bytes(size, "big"))
    assert len({counting.seal(TURN, "") for _ in range(5)}) == 5
    assert len({sealer(KEY).seal(TURN, "") for _ in range(5)}) == 5


@pytest.mark.parametrize("text", ["", "gAAAAA", "trtr2_AAAA", "TRTR1_AAAA", "\ud800"])
def test_what_is_not_ours_is_left_alone(text: str) -> None:
    assert sealer(KEY).open(text, "", "p") is None


@pytest.mark.parametrize("text", ["", "!", "\u00e9", "A", "====", "\n", " "])
def test_what_only_looks_like_ours_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        sealer(KEY).open(PREFIX + text, "", "p")


def test_a_setting_holds_keys_in_base64() -> None:
    texts = [base64.b64encode(KEY).decode(), base64.urlsafe_b64encode(b"\xff" * 32).decode()]
    assert shared_keys(texts) == [KEY, b"\xff" * 32]
    for wrong in ("", "short", "é" * 44, base64.b64encode(bytes(31)).decode(), "x" * 44):
        with pytest.raises(StartupError, match="entry 2"):
            shared_keys([texts[0], wrong])


def test_a_key_file_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "a" / "seal.key"
    key = key_of(path)
    assert len(key) == 32
    assert key_of(path) == key
    assert os.listdir(path.parent) == ["seal.key"]
    assert path.stat().st_mode & 0o777 == 0o600


# --- what is known of items that come back ------------------------------------------------------


def thought(text: str | None, blob: str | None = None) -> i.Reasoning:
    content = None if text is None else [i.ReasoningText(type="reasoning_text", text=text)]
    return i.Reasoning(type="reasoning", content=content, encrypted_content=blob)


def call(arguments: str = "{}", call_id: str = "c") -> i.FunctionCall:
    return i.FunctionCall(type="function_call", call_id=call_id, name="f", arguments=arguments)


def known(item: i.InputItem | o.OutputItem, number: int) -> TurnMessage:
    told = digest(item)
    assert told is not None
    return TurnMessage(told, bytes([number] * 4))


def said(text: str, **more: object) -> i.InputMessage:
    fields = {"role": "assistant", "content": text} | more
    return i.InputMessage.model_validate(fields)


def test_an_item_is_known_by_its_words_in_either_form() -> None:
    pairs: list[tuple[i.InputItem, o.OutputItem]] = [
        (thought("a"), o.OutputReasoning("rs_1", "completed", (o.OutputReasoningText("a"),))),
        (call(), o.OutputFunctionCall("fc_1", "c", "f", "{}", "completed")),
        (said("a"), o.OutputMessage("m", "final_answer", "completed", (o.OutputText("a"),))),
        (
            said("a", phase="commentary"),
            o.OutputMessage("m", "commentary", "completed", (o.OutputText("a"),)),
        ),
        (
            said("", content=[{"type": "output_text", "text": "a"}]),
            o.OutputMessage("m", "final_answer", "completed", (o.OutputText("a"),)),
        ),
    ]
    for ours, theirs in pairs:
        assert digest(ours) == digest(theirs)
    assert len({digest(ours) for ours, _ in pairs}) == 4
    assert digest(call("{ }")) == digest(call())  # a client may write what it has read anew
    assert digest(call('{"a": 1}')) != digest(call())
    assert digest(call(call_id="d")) != digest(call())
    assert digest(i.InputMessage(role="user", content="a")) is None


def test_an_item_gets_the_ids_of_the_turn_that_it_stands_in() -> None:
    """The same words, written twice with other ids: each turn has its own."""
    items: list[i.InputItem] = [
        said("x"),
        thought("a"),
        call(),
        said("x"),
        thought(None),
        call(),
        thought("b"),
    ]
    one = SealedTurn("d1", (known(items[1], 1), known(items[2], 2), known(items[3], 3)))
    two = SealedTurn("d2", (known(thought("hidden"), 4), known(items[5], 5)))
    brought = OpenedTurns({1: one, 4: two})
    found = [brought.ids_at(place, item) for place, item in enumerate(items)]
    numbers = [ids and ids[0] for ids in found]
    assert numbers == [3, 1, 2, 3, 4, 5, None]
    assert brought.date == "d1"


def test_nothing_is_known_when_nothing_was_brought() -> None:
    brought = OpenedTurns()
    assert brought.ids_at(0, thought("a")) is None
    assert brought.date is None
