"""Without the folder for long runs, a text gets openai-harmony's ids or is refused."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.support.tokens import POOLS, Counted, encoded, expected, random_text
from tests.support.turns import turn
from trt_responses.errors import InvalidRequest, Unsupported
from trt_responses.tokens.control import FIRST_CONTROL_ID
from trt_responses.tokens.cuts import last_cut
from trt_responses.tokens.tokenise import SLICE, UNBROKEN, Tokeniser

if TYPE_CHECKING:
    from trt_responses.tokens.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def tokeniser(vocabulary: Vocabulary) -> Tokeniser:
    return Tokeniser(vocabulary)


# Equality


def test_a_cut_is_made_only_where_openai_harmony_cuts_too(vocabulary: Vocabulary) -> None:
    source = random.Random(11)
    cuts = 0
    for _ in range(6000):
        kinds = "".join(source.sample(POOLS, 2))
        text = "".join(source.choices(kinds, k=source.randint(2, 8)))
        if cut := last_cut(text, 0, len(text)):
            cuts += 1
            apart = expected(vocabulary, text[:cut]) + expected(vocabulary, text[cut:])
            assert apart == expected(vocabulary, text), ascii(text)
    assert cuts > 2000


def test_random_texts_get_the_ids_of_openai_harmony_or_are_refused(
    vocabulary: Vocabulary, tokeniser: Tokeniser
) -> None:
    source = random.Random(5)
    same = 0
    texts = [random_text(source) for _ in range(500)]
    for text in texts:
        with suppress(Unsupported):
            assert encoded(tokeniser, text).tolist() == expected(vocabulary, text), ascii(text)
            same += 1
    assert 100 < same < len(texts)


def test_lone_surrogates_are_replaced_as_openai_harmony_does(
    vocabulary: Vocabulary, tokeniser: Tokeniser
) -> None:
    source = random.Random(3)
    for _ in range(200):
        text = "".join(source.choices("a \ud83d\ude00\udfff\n", k=source.randint(1, 20)))
        assert encoded(tokeniser, text).tolist() == expected(vocabulary, text), ascii(text)


def test_spelled_control_ids_are_ordinary_text(
    vocabulary: Vocabulary, tokeniser: Tokeniser
) -> None:
    spelled = "".join(sorted(vocabulary.encoding.special_tokens_set))
    ids = encoded(tokeniser, spelled + "<|start|>" * 300)
    assert max(ids) < FIRST_CONTROL_ID
    assert vocabulary.text(ids.tolist()) == spelled + "<|start|>" * 300


# Never holding the loop


@pytest.mark.parametrize("part", ["a", "漢", " ", "\n", "!", "😀"])
def test_a_run_is_refused_where_openai_harmony_would_hold_the_loop(
    vocabulary: Vocabulary, part: str
) -> None:
    native = Counted(vocabulary)
    tokeniser = Tokeniser(vocabulary, native=native)
    text = part * UNBROKEN
    assert encoded(tokeniser, text).tolist() == expected(vocabulary, text)
    native.taken()
    with pytest.raises(InvalidRequest, match="not installed") as raised:
        encoded(tokeniser, text + part)
    assert raised.value.param == "input"
    assert native.taken() == []


def test_runs_that_are_not_long_are_given_to_openai_harmony_one_by_one(
    vocabulary: Vocabulary,
) -> None:
    native = Counted(vocabulary)
    text = ("x" * 300 + " is no word. ") * 20
    assert encoded(Tokeniser(vocabulary, native=native), text).tolist() == expected(
        vocabulary, text
    )
    assert max(map(len, native.taken())) <= UNBROKEN


def test_other_tasks_run_while_a_long_text_is_tokenised(tokeniser: Tokeniser) -> None:
    async def count() -> int:
        turns = 0
        encoding = asyncio.create_task(tokeniser.encode("Many words, " * 10_000))
        while not encoding.done():
            turns += 1
            await turn()
        await encoding
        return turns

    assert asyncio.run(count()) >= 120_000 // SLICE


def test_other_tasks_run_while_many_short_texts_are_tokenised(tokeniser: Tokeniser) -> None:
    async def encode() -> None:
        for _ in range(1000):
            await tokeniser.encode("Many words, and few of them at once.")

    async def count() -> int:
        turns = 0
        encoding = asyncio.create_task(encode())
        while not encoding.done():
            turns += 1
            await turn()
        await encoding
        return turns

    assert asyncio.run(count()) >= 36_000 // (SLICE + 36)


# Limits


def test_what_can_never_fit_is_refused_before_any_work(vocabulary: Vocabulary) -> None:
    native = Counted(vocabulary)
    tokeniser = Tokeniser(vocabulary, native=native)
    native.taken()
    with pytest.raises(InvalidRequest):
        encoded(tokeniser, " " * 1_000_000, 7_000)
    assert native.taken() == []
