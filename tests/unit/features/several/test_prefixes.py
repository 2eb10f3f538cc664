"""Which prompts an engine has read: exact by blocks, bounded, and apart for each owner."""

from __future__ import annotations

from trt_responses.features.several.prefixes import BLOCK, Prefixes, blocks_of

PROMPT = list(range(3 * BLOCK))


def test_a_digest_stands_for_all_before_it() -> None:
    known = Prefixes()
    known.add(blocks_of(PROMPT, "ann"))
    assert known.warm(blocks_of([*PROMPT, 1, 2, 3], "ann")) == 3
    assert known.warm(blocks_of(PROMPT[: 2 * BLOCK] + [7] * BLOCK, "ann")) == 2
    assert known.warm(blocks_of([7, *PROMPT[1:]], "ann")) == 0
    assert known.warm(blocks_of(PROMPT, "bob")) == known.warm(blocks_of(PROMPT, None)) == 0
    assert blocks_of(PROMPT[: BLOCK - 1], "ann") == []


def test_the_table_is_bounded_and_forgets_the_end_of_the_oldest_prompt_first() -> None:
    known = Prefixes(most=4)
    old, new = blocks_of(PROMPT, None), blocks_of(PROMPT[::-1], None)
    known.add(old)
    known.add(new)
    assert len(known) == 4
    assert (known.warm(old), known.warm(new)) == (1, 3)
    known.add(blocks_of(PROMPT * 4, None))
    assert len(known) == 4
    known.clear()
    assert known.warm(new) == len(known) == 0
