"""Words that no list has: tokens of the whole vocabulary, as strangers bring them.

Knows the vocabulary; knows no family and no model.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

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
def _spellings() -> frozenset[bytes]:
    return frozenset(dialects.vocabulary().token_bytes)


@cache
def _words(capital: bool) -> tuple[tuple[int, str], ...]:
    """Tokens that spell a whole word behind a blank, where another spells it without the blank:
    an argument begins without one, and what other pieces would spell it cannot be copied."""
    found = []
    for token in range(COMMON):
        text = spelled(token)
        bare = text[1:].decode("ascii", "replace")
        if text[:1] != b" " or len(bare) < 3 or not (bare.isascii() and bare.isalpha()):
            continue
        if bare[1:].islower() and bare[0].isupper() is capital and text[1:] in _spellings():
            found.append((token, bare))
    assert found[-1][0] < FIRST_CONTROL_ID
    return tuple(found)


def stranger_id(rng: random.Random) -> int:
    """The id of any word."""
    listed = _words(capital=False)
    return listed[rng.randrange(len(listed))][0]


def word(rng: random.Random, *, capital: bool = False) -> str:
    """Any word: mostly one token, now and then several, or letters that are no word."""
    listed = _words(capital=capital)
    found = listed[rng.randrange(len(listed))][1]
    roll = rng.random()
    if roll < 0.05:
        letters = "".join(rng.choices(LETTERS, k=rng.randint(3, 8)))
        return letters.capitalize() if capital else letters
    if roll < 0.2:
        others = _words(capital=False)
        joined = found + others[rng.randrange(len(others))][1][: rng.randint(2, 6)]
        return joined if _copies(joined) else found
    return found


def _copies(text: str) -> bool:
    """Whether a word has the same parts behind a blank and without one, but for the first."""
    spaced, bare = (dialects.vocabulary().encode_plain(each) for each in (f" {text}", text))
    return spaced[1:] == bare[1:]


@cache
def _any() -> tuple[str, ...]:
    """All that is written behind a blank and has letters only, of any language."""
    texts = (spelled(token).decode("utf-8", "replace") for token in range(COMMON))
    return tuple(text[1:] for text in texts if text[:1] == " " and text[1:].isalpha())


def text(rng: random.Random, most: int = 5) -> str:
    """Any text to repeat: words of any language, names, numbers and a sign now and then."""
    parts = []
    for _ in range(rng.randint(1, most)):
        roll = rng.random()
        if roll < 0.08:
            parts.append(str(rng.randint(0, 9_999)))
        elif roll < 0.5:
            listed = _any()
            parts.append(listed[rng.randrange(len(listed))])
        else:
            parts.append(word(rng, capital=roll < 0.6))
        if rng.random() < 0.04:
            parts[-1] += rng.choice((",", "-", "'s", "!", "."))
    return " ".join(parts)
