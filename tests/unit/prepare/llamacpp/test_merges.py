"""Merges: a text put together by them alone has the ids that openai-harmony gives it.

Budget: 4 s on one core.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING

import pytest

from trt_responses.engines.stand_ins import StandIns, spelled
from trt_responses.prepare.llamacpp.merges import both_spellings, merges, stand_in_merges

if TYPE_CHECKING:
    from trt_responses.tokens.vocabulary import Vocabulary

WORDS = ("city", " functions", "é", "ü", "日本", "naïve", "\U0001f642", '{"', '":', " Größe", "été")


@pytest.mark.slow  # 2 s: every id
def test_merges_lead_to_every_id_and_to_openai_harmonys(vocabulary: Vocabulary) -> None:
    found = list(merges(vocabulary.token_bytes))
    assert [a + b for a, b in found] == [raw for raw in vocabulary.token_bytes if len(raw) > 1]
    order = {pair: n for n, pair in enumerate(found)}
    ids = {raw: n for n, raw in enumerate(vocabulary.token_bytes)}
    for word in WORDS:
        assert [ids[part] for part in merged(word, order)] == vocabulary.encoding.encode(word)


@pytest.mark.slow  # 3 s
def test_stand_ins_are_merged_to_the_ids_of_the_characters_they_stand_for(
    vocabulary: Vocabulary,
) -> None:
    made = chain.from_iterable(map(both_spellings, merges(vocabulary.token_bytes)))
    order = {pair: n for n, pair in enumerate((*stand_in_merges(), *made))}
    names = {spelled(raw).encode(): n for n, raw in enumerate(vocabulary.token_bytes)}
    assert len(names) == len(vocabulary.token_bytes)
    as_in_file = StandIns(vocabulary)
    for character in ("\uff46", "\ua66e", "\U0001f9ff", "\U000e0067", "\u0378", "\U0010fffd"):
        text = as_in_file(character)
        assert text != character
        ids = [names[part] for part in merged(text, order)]
        assert ids == vocabulary.encode_plain(character)
        assert as_in_file(f"é {character}日") == f"é {text}日"


def merged(text: str, order: dict[tuple[bytes, bytes], int]) -> list[bytes]:
    """What the merges make of it, the first of them first."""
    parts = [bytes((byte,)) for byte in text.encode()]
    while pairs := [(order[p], n) for n, p in enumerate(pairwise(parts)) if p in order]:
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts
