"""What is known of each row before training: which spell one word, which are of one kind.

Knows the lists that values, functions and parameters come from; knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scripts.demo import agent, toolkit, wordings
from scripts.demo.conversation import encoding
from scripts.demo.rows import encode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from scripts.demo.rows import Codec

NUMBERS = 41
GAPS = (":", " is", " =", "=", " ", " and")
"""What people write between a name and its value, or between two values."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What is known of each row before training.

    `kin` names the word that it spells: rows of one word start nearly alike. `kinds` is the kind of
    value that it belongs to: rows of one kind have something in common. `numbers` lie on circles,
    where adding is turning. `functions` end the name of a function, `parameters` begin one's.
    `gaps` stand between a name and its value, `signs` are no values at all.
    """

    kin: Sequence[int]
    kinds: Sequence[int | None]
    numbers: Mapping[int, int]
    functions: Collection[int]
    parameters: Collection[int]
    gaps: Collection[int]
    signs: Collection[int]


def knowledge(known: Codec) -> Rows:
    marked = functions(known), parameters(known), gaps(known), signs(known)
    return Rows(kin(known), kinds(known), numbers(known), *marked)


def kin(known: Codec) -> list[int]:
    """For each row the word that it spells, whatever the case and the blank before it."""
    words: dict[str, int] = {}
    spelled = [encoding().decode([token]).strip().lower() or str(token) for token in known.used]
    rows = [words.setdefault(word, len(words)) for word in spelled]
    for value in wordings.every_value():
        spaced, bare = encode(f" {value}"), encode(value)
        both = spaced[0] in known.row_of and bare[0] in known.row_of
        if len(spaced) == 1 and len(bare) > 1 and both:
            rows[known.row_of[bare[0]]] = rows[known.row_of[spaced[0]]]
    return [*rows, len(words)]


def kinds(known: Codec) -> list[int | None]:
    """For each row the kind of value that it is part of, if it is: city, name, number and so on."""
    found: list[int | None] = [None] * (len(known.used) + 1)
    listed = wordings.values()
    towns = (*listed.cities, *listed.capitals.values())
    digits = tuple(text for text in known.spelled if text.isdecimal())
    values = (listed.words, tuple(listed.capitals), listed.names, towns, digits)
    for kind, members in enumerate(values):
        for value in members:
            for token in (*encode(value), *encode(f" {value}")):
                if token in known.row_of and encoding().decode([token]).strip():
                    found[known.row_of[token]] = kind
    return found


def numbers(known: Codec) -> dict[int, int]:
    """The rows of small numbers, and what they are worth."""
    return {known.row_of[encode(str(n))[0]]: n for n in range(NUMBERS)}


def functions(known: Codec) -> frozenset[int]:
    """The rows that a function's name ends in."""
    names = (*toolkit.function_names(), *agent.SHELLS, agent.PATCH)
    return _rows(known, (encode(f" {name}")[-1] for name in names))


def parameters(known: Codec) -> frozenset[int]:
    """The rows that a parameter's name begins with where it is declared: no blank is before it."""
    shells = (parameter for parameter, _ in agent.SHELLS.values())
    names = (*toolkit.parameter_names(), *shells, agent.PATCH_PARAMETER)
    return _rows(known, (encode(name)[0] for name in names))


def gaps(known: Codec) -> frozenset[int]:
    return _rows(known, (encode(gap)[0] for gap in GAPS))


def _rows(known: Codec, tokens: Iterable[int]) -> frozenset[int]:
    return frozenset(known.row_of[token] for token in tokens if token in known.row_of)


def signs(known: Codec) -> frozenset[int]:
    """The rows without a letter or a digit, Harmony's own, and what stands between values."""
    rows = enumerate(known.spelled[:-1])
    return gaps(known) | {
        row for row, text in rows if text[:2] == "<|" or not any(map(str.isalnum, text))
    }
