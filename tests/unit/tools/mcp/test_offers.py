"""What is kept of lists that servers offered: bounded by its size, and never another list's."""

from __future__ import annotations

from functools import partial
from typing import Any

from trt_responses.tools.mcp.offers import MadeOnce


def kept(entries: list[tuple[list[Any], bytes]]) -> list[int]:
    """The numbers of the entries of which a memory of 10,000 characters still knows what it made,
    after all of them."""
    made: MadeOnce[int] = MadeOnce(most=10_000)
    for number, (source, key) in enumerate(entries):
        assert made.of(source, key, partial(int, number)) == number
    found = []
    for number, (source, key) in reversed([*enumerate(entries)][-5:]):
        if made.of(source, key, partial(int, -1)) == number:
            found.append(number)
    return found


def test_long_lists_of_few_tools_do_not_fill_the_memory() -> None:
    lists = [[{"name": "find", "description": str(number) * 4000}] for number in range(9)]
    assert kept([(one, b"") for one in lists]) == [8, 7]


def test_long_keys_of_one_list_do_not_fill_the_memory() -> None:
    one: list[Any] = []
    assert kept([(one, b"%d" % number * 4000) for number in range(9)]) == [8, 7]


def test_a_list_is_known_by_itself_and_its_key_while_it_is_kept() -> None:
    made: MadeOnce[str] = MadeOnce(most=10_000)
    one, like = [{"name": "find"}], [{"name": "find"}]
    assert made.of(one, b"a", lambda: "first") == "first"
    assert made.of(one, b"a", lambda: "again") == "first"
    assert made.of(one, b"b", lambda: "other key") == "other key"
    assert made.of(like, b"a", lambda: "other list") == "other list"
