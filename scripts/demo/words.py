"""Words that no list has: tokens of the whole vocabulary, as strangers bring them.

Knows the vocabulary; knows no family and no model.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from scripts.demo.conversation import encoding
from trt_responses.backends import dialects
from trt_responses.tokens.control import FIRST_CONTROL_ID

if TYPE_CHECKING:
    import random

LETTERS = "abcdefghijklmnopqrstuvwxyz"
COMMON = 60_000
"""Ids below this one are of the commoner half of what people write."""


def spelled(token: int) -> bytes:
    """The bytes of a token; of a control id, its number."""
    return dialects.vocabulary().token_bytes[token] if token < FIRST_CONTROL_ID else b"%d" % token


@cache
def _words(capital: bool) -> tuple[tuple[int, str], ...]:
    """Tokens that spell a whole word behind a blank, where another spells it without the blank:
    an argument begins without one, and what other pieces would spell it cannot be copied."""
    found = []
    for token in range(COMMON):
        text = encoding().decode([token])
        bare = text[1:]
        if text[:1] != " " or len(bare) < 3 or not (bare.isascii() and bare.isalpha()):
            continue
        if (
            bare[1:].islower()
            and bare[0].isupper() is capital
            and len(encoding().encode(bare)) == 1
        ):
            found.append((token, bare))
    assert found[-1][0] < FIRST_CONTROL_ID
    return tuple(found)


def stranger_id(rng: random.Random) -> int:
    """The id of any word."""
    listed = _words(capital=False)
    return listed[rng.randrange(len(listed))][0]


def word(rng: random.Random, *, capital: bool = False) -> str:
    """Any word: mostly one token, now and then two, or letters that are no word."""
    roll = rng.random()
    if roll < 0.08:
        text = "".join(rng.choices(LETTERS, k=rng.randint(3, 8)))
        return text.capitalize() if capital else text
    listed = _words(capital=capital)
    return listed[rng.randrange(len(listed))][1]


def text(rng: random.Random, most: int = 5) -> str:
    """Any text to repeat: words, names and numbers."""
    parts = []
    for _ in range(rng.randint(1, most)):
        roll = rng.random()
        if roll < 0.1:
            parts.append(str(rng.randint(0, 9_999)))
        else:
            parts.append(word(rng, capital=roll < 0.25))
    return " ".join(parts)
