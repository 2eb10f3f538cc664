"""Dense text gets openai-harmony's ids, whatever stands around it, with little work at once."""

from __future__ import annotations

import asyncio
import base64
import gc
import random
import threading
from array import array
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.long_runs import tokeniser_of
from tests.support.sampled import sampled
from tests.support.served import served
from tests.support.tokens import encoded
from trt_responses.features.dense_text import shorttokens
from trt_responses.features.dense_text.dense import ALPHABET, LEAST, LONGEST_PIECE, MOST, Dense
from trt_responses.features.dense_text.shorttokens import LONGEST, MISSING, ShortTokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trt_responses.tokens.tokenise import Tokeniser
    from trt_responses.tokens.vocabulary import Vocabulary

LETTERS = ALPHABET.decode()
POOLS = (
    LETTERS,
    "aB",
    "Aa1",
    "+/=_-",
    "a+/",
    "A1-=",
    "0123456789",
    "12a",
    "etaoin",
    "ABCDEFGH",
    "theTHEofINion",
    "ÉéA a\u0301漢²",
    " \n\r\t/a",
    "'sStTdDmMlLrReEvVx",
)
"""What dense text is made of, and four kinds that are none."""
DENSE_POOLS = POOLS[:-3]

stretches = st.lists(
    st.sampled_from(DENSE_POOLS).flatmap(lambda pool: st.text(pool, max_size=12)), max_size=12
).map("".join)
around = st.sampled_from(POOLS).flatmap(lambda pool: st.text(pool, max_size=6))
ascii_text = st.text(st.characters(max_codepoint=127), max_size=30)


def expected(vocabulary: Vocabulary, text: str) -> list[int]:
    ids: list[int] = vocabulary.encoding.encode(text, disallowed_special=())
    return ids


@pytest.fixture(scope="module")
def dense(vocabulary: Vocabulary) -> Dense:
    """It takes the shortest texts too."""
    return Dense(vocabulary.token_bytes, least=1)


@pytest.fixture(scope="module")
def changeable(vocabulary: Vocabulary) -> Tokeniser:
    """It goes from the one way to the other as often as it can."""
    dense = Dense(vocabulary.token_bytes, least=8, most=40)
    return tokeniser_of(vocabulary, slice_chars=50, shortcut=dense)


# Equality


@pytest.mark.slow  # 2 s: 1,000 texts by two tokenisers
@settings(max_examples=1000)
@given(stretches, around)
def test_a_dense_stretch_gets_the_ids_of_openai_harmony_whatever_follows(
    vocabulary: Vocabulary, dense: Dense, stretch: str, behind: str
) -> None:
    text = stretch + behind
    if (found := dense.encode(text, 0)) is not None:
        ids, end = found
        assert ids.tolist() + expected(vocabulary, text[end:]) == expected(vocabulary, text)


@pytest.mark.slow  # 2 s: 500 texts by two tokenisers
@settings(max_examples=500)
@given(st.lists(st.one_of(stretches, around, ascii_text), max_size=8).map("".join))
def test_texts_that_are_dense_in_part_get_the_ids_of_openai_harmony(
    vocabulary: Vocabulary, changeable: Tokeniser, text: str
) -> None:
    assert encoded(changeable, text).tolist() == expected(vocabulary, text)


@settings(max_examples=300)
@given(ascii_text, st.integers(1, 30))
def test_any_ascii_repeated_gets_the_ids_of_openai_harmony(
    vocabulary: Vocabulary, changeable: Tokeniser, part: str, times: int
) -> None:
    text = part * times
    assert encoded(changeable, text).tolist() == expected(vocabulary, text)


def dense_texts() -> dict[str, str]:
    source = random.Random(64)
    data = source.randbytes(9_000)
    return {
        "base64": base64.b64encode(data).decode(),
        "base64 for addresses": base64.urlsafe_b64encode(data).decode(),
        "hexadecimal": data.hex(),
        "digits": "".join(source.choices("0123456789", k=12_000)),
        "words and digits": "".join(source.choices(["The", "Cat", "sat7", "_"], k=4_000)),
        "one of each": "a1" * 6_000,
    }


@pytest.mark.parametrize("kind", dense_texts())
def test_dense_texts_get_the_ids_of_openai_harmony_without_it(
    vocabulary: Vocabulary, kind: str
) -> None:
    given_away: list[str] = []

    def native(text: str) -> list[int]:
        given_away.append(text)
        return expected(vocabulary, text)

    tokeniser = tokeniser_of(vocabulary, native=native, shortcut=Dense(vocabulary.token_bytes))
    given_away.clear()  # it asked for some classes
    text = dense_texts()[kind]
    assert encoded(tokeniser, text).tolist() == expected(vocabulary, text)
    assert sum(map(len, given_away)) < len(text) / 3, "dense text went to openai-harmony"


def test_every_word_of_the_vocabulary_gets_the_ids_of_openai_harmony(
    vocabulary: Vocabulary, dense: Dense
) -> None:
    """Each that a stretch may hold; twenty at once. Half a second."""
    words = [
        data.decode()
        for data in vocabulary.token_bytes
        if not data.strip(ALPHABET) and len(data) <= LONGEST_PIECE
    ]
    assert len(words) > 40_000
    for low in range(0, len(words), 20):
        text = "1".join(words[low : low + 20])
        if (found := dense.encode(text, 0)) is not None:
            assert found[0].tolist() == expected(vocabulary, text)


def test_a_server_of_harmony_makes_it_when_a_text_needs_it(vocabulary: Vocabulary) -> None:
    def makers() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "dense text"]

    async def story() -> None:
        async with served() as s:
            tokeniser = s.app.state.server.served.dialect.renderer.tokeniser
            await tokeniser.encode("two words " * LEAST)
            await tokeniser.encode("a" * (LEAST - 1))
            assert makers() == []
            text = dense_texts()["base64"]
            meanwhile = await tokeniser.encode(text)
            for thread in makers():
                thread.join()
            assert isinstance(tokeniser.shortcut, Dense)
            assert (await tokeniser.encode(text)).tolist() == meanwhile.tolist()
            assert meanwhile.tolist() == expected(vocabulary, text)

    asyncio.run(story())


# Never holding the loop


def slow_texts() -> dict[str, str]:
    """As long and as few pre-tokens as are taken, and longer ones."""
    source = random.Random(3)

    def words(*sizes: int) -> str:
        made: list[str] = []
        while sum(map(len, made)) < 3 * MOST:
            made += ["".join(source.choices("etaoinshr", k=size)) + "1" for size in sizes]
        return "".join(made)

    return {
        "8": words(LONGEST),
        "16": words(LONGEST_PIECE),
        "8 and few of 16": words(*[LONGEST] * 20, LONGEST_PIECE),
        "7 and few of 100": words(*[7] * 120, 100),
        "17": words(LONGEST_PIECE + 1),
        "100": words(100),
        "one character": "aa1" * MOST,
        "one word": "a" * MOST * 2,
    }


@sampled("kind", [*slow_texts(), *dense_texts()])  # 2 s
def test_little_is_done_between_two_pauses(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    looks: list[int] = []
    find = ShortTokens.find

    def counted(self: ShortTokens, numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
        looks.append(len(numbers))
        return find(self, numbers)

    monkeypatch.setattr(ShortTokens, "find", counted)  # patched: work is counted where it is done
    tokeniser = tokeniser_of(vocabulary, shortcut=Dense(vocabulary.token_bytes))
    text = (slow_texts() | dense_texts())[kind]
    ids: array[int] = array("I")
    known = 0
    for _ in tokeniser.steps(text, ids):
        assert len(ids) - known <= MOST
        assert sum(looks) <= 5 * MOST
        assert len(looks) <= LONGEST_PIECE + 2
        looks.clear()
        known = len(ids)
    assert vocabulary.text(ids.tolist()) == text


@pytest.mark.parametrize("kind", ["16", "7 and few of 100", "17", "100", "one word"])
def test_long_words_are_left_to_openai_harmony(vocabulary: Vocabulary, kind: str) -> None:
    assert Dense(vocabulary.token_bytes).encode(slow_texts()[kind], 0) is None


def test_short_stretches_are_left_to_openai_harmony(vocabulary: Vocabulary) -> None:
    dense = Dense(vocabulary.token_bytes)
    text = dense_texts()["base64"]
    assert dense.encode(text[: LEAST - 1] + " and so on", 0) is None
    assert dense.encode(text[:LEAST] + " and so on", 0) is not None


# Looking up


def test_every_short_token_is_found_and_nothing_else(vocabulary: Vocabulary) -> None:
    tokens = {
        data: i
        for i, data in enumerate(vocabulary.token_bytes)
        if len(data) <= LONGEST and data[-1]
    }
    known = dict(list(tokens.items())[::2])
    found = ShortTokens(known).find(numbers(list(tokens)))
    assert found.tolist() == [known.get(data, MISSING) for data in tokens]


def test_all_dense_tokens_fit_into_two_mebibytes(vocabulary: Vocabulary) -> None:
    tokens = {
        data: i
        for i, data in enumerate(vocabulary.token_bytes)
        if len(data) <= LONGEST and not data.strip(ALPHABET)
    }
    short = ShortTokens(tokens)
    arrays = [one for one in gc.get_referents(short) if isinstance(one, np.ndarray)]
    assert len(arrays) >= 2
    assert sum(one.nbytes for one in arrays) <= 2 << 20


def test_the_empty_string_is_no_token() -> None:
    assert ShortTokens({b"a": 7}).find(numbers([b"", b"a"])).tolist() == [MISSING, 7]


def test_tokens_that_want_the_same_two_places_get_a_larger_table() -> None:
    wanted: dict[tuple[int, int], list[bytes]] = {}
    for i in range(1, 2_000):
        number = int.from_bytes(data := str(i).encode(), "little")
        # private: by the hash alone one finds tokens that collide
        both = (shorttokens._place(number, 0, 60), shorttokens._place(number, 1, 60))
        wanted.setdefault(both, []).append(data)
    crowd = max(wanted.values(), key=len)[:3]
    assert len(crowd) == 3
    tokens = {data: i for i, data in enumerate(crowd)}
    assert ShortTokens(tokens).find(numbers(crowd)).tolist() == [0, 1, 2]


def numbers(strings: list[bytes]) -> NDArray[np.uint64]:
    return np.array([int.from_bytes(data, "little") for data in strings], np.uint64)
