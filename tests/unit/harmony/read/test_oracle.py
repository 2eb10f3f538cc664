"""The reader against openai-harmony on random generations, and the laws where that one refuses."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.oracle import (
    Generations,
    Judge,
    check_spans,
    merge,
    read_in_chunks,
    repairs,
    split,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.harmony.read.reader import Tables
    from trt_responses.tokens.vocabulary import Vocabulary


@pytest.mark.parametrize(
    "ids",
    [20_000, pytest.param(200_000, marks=pytest.mark.slow)],  # 5 s: two parsers over 200,000 ids
)
def test_fragments_equal_openai_harmonys_on_random_ids(
    vocabulary: Vocabulary, tables: Tables, ids: int
) -> None:
    generations, judge = Generations(vocabulary, seed=20), Judge(vocabulary, tables)
    agreed = refused = 0
    kinds: Counter[str] = Counter()
    while agreed < ids:
        token_ids = generations.next()
        verdict = judge.judge(token_ids, stopped=generations.rng.random() < 0.5)
        agreed += verdict.ids
        refused += verdict.refused
        kinds.update(verdict.repaired)
    assert refused > ids / 1_000
    assert set(kinds) >= {
        "stray_text",
        "stray_control",
        "malformed_header",
        "cut_header",
        "foreign_author",
        "missing_terminator",
    }


def _generations(vocabulary: Vocabulary, seed: int, ids: int) -> Iterator[list[int]]:
    generations = Generations(vocabulary, seed)
    while ids > 0:
        token_ids = generations.next()
        ids -= len(token_ids)
        yield token_ids


# 3 s on one core.
def test_any_chunking_gives_the_same_fragments_kept_ids_and_spans(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    rng = random.Random(21)
    for token_ids in _generations(vocabulary, 21, 60_000):
        stopped = rng.random() < 0.5
        whole, reader = read_in_chunks(tables, [token_ids], stopped=stopped)
        parts, other = read_in_chunks(tables, split(token_ids, rng), stopped=stopped)
        assert merge(parts) == merge(whole)
        assert (other.kept, other.messages, other.ended) == (
            reader.kept,
            reader.messages,
            reader.ended,
        )


@settings(max_examples=150)
@given(data=st.data())
def test_chunking_does_not_matter_and_nothing_raises_for_any_ids(
    data: st.DataObject, tables: Tables
) -> None:
    control = st.integers(199_998, 200_020)
    anything = st.one_of(control, st.integers(0, 300), st.integers(), st.booleans())
    token_ids = data.draw(st.lists(anything, max_size=80))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(token_ids)), max_size=10)))
    stopped = data.draw(st.booleans())
    chunks = [token_ids[a:b] for a, b in zip([0, *cuts], [*cuts, len(token_ids)], strict=True)]
    whole, _ = read_in_chunks(tables, [token_ids], stopped=stopped)
    parts, reader = read_in_chunks(tables, chunks, stopped=stopped)
    assert merge(parts) == merge(whole)
    check_spans(reader, parts)


# 4 s on one core.
def test_corrupting_any_one_token_never_raises_and_stays_lawful(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    rng = random.Random(22)
    wrong = (-1, -200_000, 201_088, 2**31, 2**70, *range(199_998, 200_014))
    for token_ids in _generations(vocabulary, 22, 1_000):
        for at in range(len(token_ids)):
            for corrupt in (*rng.sample(wrong, 3), rng.randrange(199_998)):
                ids = [*token_ids[:at], corrupt, *token_ids[at + 1 :]]
                fragments, reader = read_in_chunks(tables, split(ids, rng), stopped=True)
                check_spans(reader, fragments)
                if not 0 <= corrupt < 201_088 and corrupt not in reader.kept and not reader.ended:
                    assert "undecodable" in repairs(fragments)


ATOMS = ("<|start|>assistant", "<|channel|>final", "<|channel|>analysis", "<|channel|>commentary",
         "<|message|>", "<|message|>", "<|end|>", "<|end|>", "<|constrain|>json", " to=functions.f",
         "<|start|>assistant<|channel|>final<|message|>")  # fmt: skip


# 3 s on one core.
@pytest.mark.parametrize("seed", range(4))
def test_text_in_equals_text_out_whatever_the_structure(
    vocabulary: Vocabulary, tables: Tables, seed: int
) -> None:
    """Words that have no place in a header come out, each once and in order, and nothing else."""
    rng, ids = random.Random(seed), Generations(vocabulary, seed).ids
    repaired = 0
    for _ in range(600):
        atoms = [*ATOMS, "<|return|>"] if rng.random() < 0.3 else list(ATOMS)
        marked = [rng.choice([*atoms, *(f" w{n}é;" for _ in ATOMS)]) for n in range(30)]
        token_ids = [i for atom in marked for i in ids(atom)]
        fragments, reader = read_in_chunks(tables, split(token_ids, rng), stopped=True)
        text = "".join(message.text for message in told(fragments))
        written = vocabulary.text(reader.kept)
        assert re.findall(r"w\d+é;", text) == re.findall(r"w\d+é;", written)
        rest = iter(written)
        assert all(character in rest for character in text), "text that the model did not write"
        repaired += bool(repairs(fragments))
    assert repaired > 300
