"""Values that the type checker freezes: equal by content, hashed by it, and copied whole."""

from __future__ import annotations

import pytest

from trt_responses.frozen import dataclass, replace
from trt_responses.wire import events as e
from trt_responses.wire import output as o
from trt_responses.wire.response import Response


@dataclass(frozen=True)
class Pair:
    left: int
    right: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Slotted:
    left: int


def test_values_of_one_content_are_equal_and_have_one_hash() -> None:
    assert len({Pair(1), Pair(1, ()), Pair(2), Slotted(1), Slotted(1)}) == 3


def test_mypy_refuses_to_change_a_value() -> None:
    """`make check` fails when one of these comments is not needed any more."""
    pair, slotted = Pair(1), Slotted(1)
    pair.left = 2  # type: ignore[misc]
    slotted.left = 2  # type: ignore[misc]
    assert (pair.left, slotted.left) == (2, 2), "it is mypy that refuses, and nothing at run time"


@pytest.mark.parametrize(
    ("value", "changes"),
    [
        (Pair(1, (2,)), {"left": 3}),
        (Response("resp_0", 1, "gpt-oss"), {"status": "failed", "metadata": {"a": "b"}}),
        (e.OutputTextDelta("msg_0", 0, 0, "a"), {"delta": "b"}),
        (o.OutputMessage("msg_0", "final_answer"), {"content": (o.OutputText("a"),)}),
    ],
)
def test_a_copy_has_the_other_values_and_all_else_of_its_original(
    value: Pair | Response | e.OutputTextDelta | o.OutputMessage, changes: dict[str, object]
) -> None:
    before = dict(vars(value))
    copy = replace(value, **changes)  # type: ignore[arg-type]
    assert vars(copy) == before | changes
    assert type(copy) is type(value)
    assert vars(value) == before
