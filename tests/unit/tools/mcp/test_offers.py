"""What is kept of lists that servers offered: bounded by its size, and never another list's."""

from __future__ import annotations

from trt_responses.tools.mcp.offers import MadeOnce


def test_long_lists_of_few_tools_do_not_fill_the_memory() -> None:
    made: MadeOnce[int] = MadeOnce(most=10_000)
    for number in range(100):
        source = [{"name": "find", "description": str(number) * 2000}]
        assert made.of(source, b"", lambda number=number: number) == number
    assert len(made._made) <= 5


def test_long_keys_of_one_list_do_not_fill_the_memory() -> None:
    made: MadeOnce[int] = MadeOnce(most=10_000)
    for number in range(100):
        made.of([], b"%d" % (number + 10) * 2000, lambda: 0)
    assert len(made._made) <= 5


def test_a_list_is_known_by_itself_and_its_key_while_it_is_kept() -> None:
    made: MadeOnce[str] = MadeOnce(most=10_000)
    one, like = [{"name": "find"}], [{"name": "find"}]
    assert made.of(one, b"a", lambda: "first") == "first"
    assert made.of(one, b"a", lambda: "again") == "first"
    assert made.of(one, b"b", lambda: "other key") == "other key"
    assert made.of(like, b"a", lambda: "other list") == "other list"
