"""Which turns leave a prompt: whole ones, the oldest, and never a call without its result."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_responses.features.truncation.install import truncated_places, turns
from trt_responses.store import Block, Kind

LETTERS: dict[str, Kind] = {
    "u": "user",
    "d": "developer",
    "r": "reasoning",
    "p": "preamble",
    "f": "final",
}


def blocks(letters: str) -> list[Block]:
    """Messages by letter; a digit is a call, and its second appearance the result."""
    made, called = list[Block](), set[str]()
    for letter in letters:
        if letter in LETTERS:
            made.append(Block(LETTERS[letter], b"{}", b""))
        elif letter in called:
            made.append(Block("result", orjson.dumps({"call_id": letter}), b""))
        else:
            called.add(letter)
            made.append(Block("call", b"{}", b"", letter, "functions.f"))
    return made


@pytest.mark.parametrize(
    ("letters", "starts"),
    [
        *[("", []), ("u", []), ("uf", []), ("ufu", [2]), ("ufuf", [2]), ("uufuu", [3])],
        *[("dufu", [3]), ("ufdu", [3]), ("ur11fur2", [5]), ("fu", [1]), ("uduf", [])],
    ],
)
def test_a_turn_begins_with_what_a_user_says(letters: str, starts: list[int]) -> None:
    assert turns(blocks(letters)) == starts


@pytest.mark.parametrize(
    ("letters", "excess", "left"),
    [
        *[("ufuf", 1, "uf"), ("ufufu", 2, "ufu"), ("ufufu", 3, "u"), ("ufufu", 99, "u")],
        *[("uf", 9, "uf"), ("dufdu", 1, "ddu"), ("ur1u1fu", 1, "u"), ("u1uf1fu", 3, "u")],
        *[("u1u1", 9, "u1u1"), ("u11fu22f", 1, "u22f"), ("u1fu11u", 3, "u")],
    ],
)
def test_as_few_turns_leave_as_will_do(letters: str, excess: int, left: str) -> None:
    made = blocks(letters)
    gone = truncated_places(made, [1] * len(made), excess)
    assert "".join(c for place, c in enumerate(letters) if place not in gone) == left


@settings(max_examples=200)
@given(st.text("udrpf12", max_size=30), st.integers(1, 40))
def test_whatever_the_conversation_its_last_turn_and_its_pairs_are_whole(
    letters: str, excess: int
) -> None:
    made = blocks(letters)
    gone = truncated_places(made, [1] * len(made), excess)
    kinds = [block.kind for block in made]
    assert not any(kinds[place] == "developer" for place in gone)
    if "user" in kinds:
        last = len(kinds) - 1 - kinds[::-1].index("user")
        assert not any(place >= last for place in gone)
    calls: dict[str, int] = {}
    for place, block in enumerate(made):
        if block.call_id:
            calls[block.call_id] = place
        elif block.kind == "result":
            call = calls[orjson.loads(block.item)["call_id"]]
            assert place in gone or call not in gone
    if gone:  # what leaves is all that is no developer's before one place
        cut = max(gone)
        assert all(place in gone or kinds[place] == "developer" for place in range(cut))


def test_many_turns_are_looked_at_once() -> None:
    """Linear: 60,000 messages in a moment, where squared would take minutes."""
    made = blocks("uf" * 30_000)
    assert len(truncated_places(made, [1] * len(made), 59_000)) == 59_000
