"""The vocabulary, texts as ids without an event loop, and texts whose ids are easily wrong."""

from __future__ import annotations

import random
from array import array
from typing import TYPE_CHECKING

from trt_responses.backends import dialects

if TYPE_CHECKING:
    from trt_responses.tokens.tokenise import Tokeniser
    from trt_responses.tokens.vocabulary import Vocabulary


vocabulary = dialects.vocabulary
"""The one that apps take as well: each further one takes 65 MB, and its tables 35."""


def encoded(tokeniser: Tokeniser, text: str, at_most: int | None = None) -> array[int]:
    """The ids of a text, made without a pause."""
    ids: array[int] = array("I")
    for _ in tokeniser.steps(text, ids, at_most):
        pass
    return ids


def expected(vocabulary: Vocabulary, text: str) -> list[int]:
    ids: list[int] = vocabulary.encoding.encode(text, disallowed_special=())
    return ids


class Counted:
    """The encoder, and what it was given since the last pause."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._encode = vocabulary.encode_plain
        self.given: list[str] = []

    def __call__(self, text: str) -> list[int]:
        self.given.append(text)
        return self._encode(text)

    def taken(self) -> list[str]:
        given, self.given = self.given, []
        return given


POOLS = (
    "abc",
    "ABab",
    "'stremvdlSLREſ ",
    "0123456789²Ⅷ٣",
    "  \t\n\r",
    "\n\r /!",
    "漢字かなのA a",
    "é\u0301\u0300\ufe0f❤😀👍🏽\u200d",
    "!?.,;/-_ ",
    "ابجد هوز",
    "हिन्दी ",
    "ǅßʰªºǈAa",
    "\u2028\u00a0\u3000\x1c\x85 ",
    "\U00011f02\U00031350\U0001e5d0\ua7cb\ua7da\u1c89",  # letters younger than Python 3.11
    "<|start|>",
)


def random_text(source: random.Random) -> str:
    """Stretches of a few kinds, some of one character, some long enough to fill blocks."""
    parts = []
    for _ in range(source.randint(1, 12)):
        pool = "".join(source.sample(POOLS, source.choice([1, 1, 1, 2, 3])))
        if source.random() < 0.3:
            pool = source.choice(pool)
        parts += source.choices(pool, k=source.choice([1, 3, 10, 70, 150, 300]))
    return "".join(parts)
