"""Which prompts an engine has read: exact by blocks, bounded, and apart for each owner."""

from __future__ import annotations

from trt_responses.features.several.board import own_row
from trt_responses.features.several.prefixes import BLOCK, Prefixes, blocks_of

PROMPT = list(range(3 * BLOCK))


def test_a_digest_stands_for_all_before_it() -> None:
    known = own_row().prefixes
    known.add(blocks_of(PROMPT, "ann"))
    assert known.warm(blocks_of([*PROMPT, 1, 2, 3], "ann")) == 3
    assert known.warm(blocks_of(PROMPT[: 2 * BLOCK] + [7] * BLOCK, "ann")) == 2
    assert known.warm(blocks_of([7, *PROMPT[1:]], "ann")) == 0
    assert known.warm(blocks_of(PROMPT, "bob")) == known.warm(blocks_of(PROMPT, None)) == 0
    assert blocks_of(PROMPT[: BLOCK - 1], "ann") == []


def test_the_table_is_bounded_and_of_two_blocks_with_one_place_the_later_one_stands_there() -> None:
    known = Prefixes(memoryview(bytearray(4 * 8)).cast("q"))
    known.add([1, 2, 3])
    known.add([5, 6])
    assert (known.warm([1, 2]), known.warm([1, 2, 3]), known.warm([5, 6])) == (0, 3, 2)
    known.clear()
    assert known.warm([5, 6]) == 0
