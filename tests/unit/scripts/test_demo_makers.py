"""What several processes make for one that trains."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from scripts.demo.makers import making

if TYPE_CHECKING:
    from collections.abc import Iterator


def numbers(maker: int) -> Iterator[int]:
    return itertools.count(100 * maker)


def test_without_others_this_process_makes_it() -> None:
    with making(0, numbers) as made:
        assert list(itertools.islice(made, 3)) == [0, 1, 2]


@pytest.mark.slow  # starts two processes
def test_others_take_turns_and_end_with_the_block() -> None:
    with making(2, numbers) as made:
        assert list(itertools.islice(made, 5)) == [0, 100, 1, 101, 2]
