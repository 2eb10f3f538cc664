"""What front ends know of one engine together: a file with a row for each engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.several.board import PLACES, make_board, rows_of

if TYPE_CHECKING:
    from pathlib import Path


def test_each_front_end_sees_what_the_others_do_and_a_new_one_begins_with_nothing(
    tmp_path: Path,
) -> None:
    make_board(tmp_path / "board", engines=2, front_ends=2)
    (left, other), (right, _) = (rows_of(tmp_path / "board", 2, number) for number in range(2))
    left.add(2)
    right.add(1)
    right.draining = True
    left.prefixes.add([-5, 7, 8])
    assert (left.running, right.running, other.running) == (3, 3, 0)
    assert (left.draining, other.draining) == (True, False)
    assert [right.prefixes.warm(each) for each in ([-5, 7, 8], [-5, 7, 9], [9])] == [3, 2, 0]
    assert other.prefixes.warm([-5]) == 0
    again, _ = rows_of(tmp_path / "board", 2, 0)
    assert (again.running, right.running, again.draining) == (1, 1, True)
    right.prefixes.add([7 + PLACES])
    assert left.prefixes.warm([-5, 7]) == 1
    again.prefixes.clear()
    assert right.prefixes.warm([-5]) == 0
    assert (left.running, left.draining) == (1, True)
