"""Merges: a text put together by them alone has the ids that openai-harmony gives it.

Budget: 4 s on one core.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from trt_responses.prepare.merges import merges

if TYPE_CHECKING:
    from trt_responses.harmony.vocabulary import Vocabulary

WORDS = ("city", " functions", "é", "ü", "日本", "naïve", "\U0001f642", '{"', '":', " Größe", "été")


def test_merges_lead_to_every_id_and_to_openai_harmonys(vocabulary: Vocabulary) -> None:
    found = list(merges(vocabulary.token_bytes))
    assert [a + b for a, b in found] == [raw for raw in vocabulary.token_bytes if len(raw) > 1]
    order = {pair: n for n, pair in enumerate(found)}
    ids = {raw: n for n, raw in enumerate(vocabulary.token_bytes)}
    for word in WORDS:
        parts = [bytes((byte,)) for byte in word.encode()]
        while True:
            pairs = [(order[p], n) for n, p in enumerate(pairwise(parts)) if p in order]
            if not pairs:
                break
            _, at = min(pairs)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        assert [ids[part] for part in parts] == vocabulary.encoding.encode(word)
