"""With the folder any text gets openai-harmony's ids, and none makes a long step between two
pauses."""

from __future__ import annotations

import base64
import random
import re
import unicodedata
from array import array
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.long_runs import tokeniser_of
from tests.support.sampled import sampled
from tests.support.tokens import Counted, encoded, expected, random_text
from trt_responses.errors import InvalidRequest
from trt_responses.features.long_runs.merge import STEPS, LongRun, merged
from trt_responses.features.long_runs.pretokens import PIECE, Shapes
from trt_responses.features.long_runs.runs import LONG
from trt_responses.tokens.cuts import BLOCK
from trt_responses.tokens.tokenise import SLICE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trt_responses.tokens.tokenise import Tokeniser
    from trt_responses.tokens.vocabulary import Vocabulary

RANDOM_TEXTS = 2500  # about 4 s


@pytest.fixture(scope="module")
def tokeniser(vocabulary: Vocabulary) -> Tokeniser:
    return tokeniser_of(vocabulary)


# Equality


@sampled("slice_chars", [300, SLICE])  # 3 s
def test_random_texts_get_the_ids_of_openai_harmony(
    vocabulary: Vocabulary, slice_chars: int
) -> None:
    tokeniser = tokeniser_of(vocabulary, slice_chars=slice_chars)
    source = random.Random(slice_chars)
    for _ in range(RANDOM_TEXTS // 2):
        text = random_text(source)
        assert encoded(tokeniser, text).tolist() == expected(vocabulary, text), ascii(text)


@settings(max_examples=200)
@given(st.text(max_size=40), st.integers(1, 200))
def test_any_text_repeated_gets_the_ids_of_openai_harmony(
    vocabulary: Vocabulary, tokeniser: Tokeniser, part: str, times: int
) -> None:
    text = part * times
    assert encoded(tokeniser, text).tolist() == expected(vocabulary, text)


UNBROKEN = {
    "letter": "a",
    "capital": "A",
    "cjk": "漢",
    "emoji": "😀",
    "space": " ",
    "line": "\n",
    "digit": "7",
    "mark": "\u0301",
    "slash and line": "/\r\n",
    "contraction": "a's",
    "capital and cjk": "A漢",
    "bang": "!",
    "tab and space": "\t ",
}


@pytest.mark.parametrize("kind", UNBROKEN)
@pytest.mark.parametrize(("before", "after"), [("", ""), ("so ", " on"), ("12\n", "'SSx")])
def test_unbroken_runs_get_the_ids_of_openai_harmony(
    vocabulary: Vocabulary, tokeniser: Tokeniser, kind: str, before: str, after: str
) -> None:
    part = UNBROKEN[kind]
    text = before + part * (2500 // len(part)) + after
    assert encoded(tokeniser, text).tolist() == expected(vocabulary, text)


@pytest.mark.parametrize("low", [0x61, 0x4E00, 0x1F300, 0x0300, 0x1F1E6])
def test_varied_unbroken_runs_get_the_ids_of_openai_harmony(
    vocabulary: Vocabulary, tokeniser: Tokeniser, low: int
) -> None:
    source = random.Random(low)
    text = "".join(chr(low + source.randrange(26)) for _ in range(2500))
    assert encoded(tokeniser, text).tolist() == expected(vocabulary, text)


def test_character_classes_are_those_of_unicode(vocabulary: Vocabulary) -> None:
    """Of characters whose category has been the same since Unicode 3.2. About 1 s."""
    shapes = Shapes(Counted(vocabulary))
    letters = {"Lu": "U", "Lt": "U", "Ll": "w", "Lo": "b", "Lm": "b"}
    for code in (*range(0x21, 0x3000), *range(0x3001, 0x4E00), 0x7247, *range(0x1D000, 0x1D800, 3)):
        c = chr(code)
        category = unicodedata.category(c)
        if category != unicodedata.ucd_3_2_0.category(c) or category in ("Cn", "Cc"):
            continue
        if c.isspace() or c == "/":
            continue
        shape = letters.get(category) or {"M": "m", "N": "0"}.get(category[0], "!")
        assert shapes[code] == shape, f"U+{code:04X} {category}"


# Merging


def ran_out(steps: Iterator[None]) -> int:
    return sum(1 for _ in steps)


def whole(data: bytes, ranks: dict[bytes, int]) -> list[int]:
    steps = merged(data, ranks)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            pieces: list[int] = end.value
            return pieces


@pytest.mark.parametrize(("window", "overlap"), [(1, 1), (3, 1), (8, 2), (64, 16)])
def test_windows_join_to_the_merge_of_the_whole(window: int, overlap: int) -> None:
    """With vocabularies made to disagree: tokens far longer than the overlap."""
    source = random.Random(window)
    for _ in range(150):
        words = {"".join(source.choices("ab", k=source.randint(2, 9))).encode() for _ in range(30)}
        ranks = {word: i for i, word in enumerate([b"a", b"b", *sorted(words)])}
        data = "".join(source.choices(("a", "b", "ab", "aab"), k=60)).encode()
        run = LongRun(data, ranks, window=window, overlap=overlap)
        ran_out(run.steps())
        assert run.pieces == whole(data, ranks)


class CountedRanks(dict[bytes, int]):
    looked_up = 0

    def get(self, key: bytes, default: int = 0) -> int:  # type: ignore[override]
        self.looked_up += 1
        return super().get(key, default)


@pytest.mark.parametrize("unit", ["a", "漢", "abcdefg", "abcdefghijklmnopqrstuvwxyz"])
def test_a_long_run_is_merged_in_bounded_steps_and_linear_work(
    vocabulary: Vocabulary, unit: str
) -> None:
    ranks = CountedRanks({data: i for i, data in enumerate(vocabulary.token_bytes)})
    work = {}
    for size in (8_000, 32_000):
        text = "".join(random.Random(1).choices(unit, k=size))
        run = LongRun(text.encode(), ranks)
        ranks.looked_up = before = 0
        for _ in run.steps():
            assert ranks.looked_up - before <= 12 * STEPS
            before = ranks.looked_up
        work[size] = ranks.looked_up
    assert work[8_000] > 8_000
    assert work[32_000] < 4.5 * work[8_000]


# Never holding the loop


def long_texts() -> dict[str, str]:
    source = random.Random(7)
    size = 20_000
    return {
        **{kind: part * (size // len(part)) for kind, part in UNBROKEN.items()},
        "base64": base64.b64encode(source.randbytes(size)).decode(),
        "random cjk": "".join(chr(source.randint(0x4E00, 0x9FFF)) for _ in range(size)),
        "mixed": "".join(source.choices("aA1 \n漢😀\u0301'!/", k=size)),
        "prose": "The quick brown fox, aged 12, isn't lazy. " * (size // 42),
        "new letters": "a" * 100 + "".join(chr(0x13000 + i) + "!" for i in range(1000)),
        "words between runs": ("x" * 300 + " is no word. ") * (size // 313),
    }


@sampled("kind", long_texts())  # 3 s
def test_every_text_is_given_to_openai_harmony_in_short_pieces(
    vocabulary: Vocabulary, kind: str
) -> None:
    """Between two pauses: one slice at most, no unbroken run in it, few questions about classes."""
    native = Counted(vocabulary)
    tokeniser = tokeniser_of(vocabulary, native=native)
    text = long_texts()[kind]
    native.taken()
    ids: array[int] = array("I")
    for _ in tokeniser.steps(text, ids):
        given = native.taken()
        assert len(given) <= 5 * 3 * PIECE
        slices = [piece for piece in given if len(piece) > 8]
        assert sum(map(len, slices)) <= SLICE + LONG
        assert not any(unbroken(piece) for piece in slices)
    assert vocabulary.text(ids.tolist()) == text


def unbroken(text: str) -> bool:
    runs = r"[^\W\d_]{%d}|[ ]{%d}|\n{%d}|[!/]{%d}|😀{%d}"
    return re.search(runs.replace("%d", str(2 * BLOCK + 5)), text) is not None


# Limits


@pytest.mark.parametrize("make", [lambda n: " a" * n, lambda n: "7" * 3 * n, lambda n: "漢" * n])
def test_at_most_is_exact(tokeniser: Tokeniser, make: Callable[[int], str]) -> None:
    text = make(2000)
    count = len(encoded(tokeniser, text))
    assert len(encoded(tokeniser, text, count)) == count
    with pytest.raises(InvalidRequest) as raised:
        encoded(tokeniser, text, count - 1)
    assert raised.value.code == "context_length_exceeded"


@pytest.mark.parametrize("alphabet", ["QmFzZTY0", "a", "漢", "\n", "word ", "abcdefghijklmno"])
def test_a_text_that_is_too_long_is_given_up_early(vocabulary: Vocabulary, alphabet: str) -> None:
    native = Counted(vocabulary)
    tokeniser = tokeniser_of(vocabulary, native=native)
    native.taken()
    text = "".join(random.Random(2).choices(alphabet, k=500_000))
    assert pauses_before_refusal(tokeniser.steps(text, array("I"), at_most=4_000)) < 1000
    assert sum(map(len, native.taken())) < 50_000


def pauses_before_refusal(steps: Iterator[None]) -> int:
    pauses = 0
    try:
        for _ in steps:
            pauses += 1
    except InvalidRequest:
        return pauses
    raise AssertionError("the text was not refused")
