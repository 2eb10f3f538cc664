"""How people may say a thing: wordings seen in training, and wordings held back from it.

Knows text only. `[a|b]` in a seen wording stands for each of its parts, `{slot}` for a value.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "engines" / "demo-source"
NAMES = "wordings_four.json"
FROZEN = ("wordings.json", "wordings_two.json", "wordings_three.json", NAMES)
"""Held-back wordings; the later files' are of questions that came later: about two cities, to count
from one, and for objects, files and products, with held-back names of properties."""
Wordings = dict[str, tuple[str, ...]]
T = TypeVar("T")

PREFIXES = ("please ", "hey, ", "hi, ", "hello, ", "ok, ", "so, ", "now ", "well, ", "and ", "um, ")
SUFFIXES = (" please", ", please", " thanks", ", thanks", ", thank you", " for me", " now")
ENDS = ("", "", ".", "!", "?")


@dataclass(frozen=True, slots=True)
class Values:
    """The closed lists that slots are filled from."""

    capitals: Mapping[str, str]
    cities: tuple[str, ...]
    names: tuple[str, ...]
    words: tuple[str, ...]
    fields: tuple[str, ...]
    """Names of properties, as schemas have them."""
    strange: Mapping[str, tuple[str, ...]]
    """Names, places, countries and words that the model keeps no row for: it can only say so."""


@cache
def values() -> Values:
    raw = json.loads((HERE / "values.json").read_text("utf-8"))
    return Values(
        raw["capitals"],
        tuple(raw["cities"]),
        tuple(raw["names"]),
        tuple(raw["words"].split()),
        tuple(raw["fields"].split()),
        {kind: tuple(listed) for kind, listed in raw["strange"].items()},
    )


@cache
def held_fields() -> tuple[str, ...]:
    """Names of properties that no schema of the training has; as words it knows them."""
    raw = json.loads((SOURCE / NAMES).read_text("utf-8"))
    return tuple(raw["fields"].split())


@cache
def seen_fields() -> tuple[str, ...]:
    """Names of properties in training: those that schemas have, and any word, name and place, so
    that what is learnt is to look a name up, whichever it is."""
    listed = values()
    others = {*listed.words, *listed.names, *listed.cities, *listed.capitals}
    words = {word for word in others if word.isalpha()} - set(held_fields())
    return (*listed.fields * 3, *sorted(words))


def every_value() -> tuple[str, ...]:
    """All values of the closed lists that a reply may have to copy."""
    listed = values()
    towns = tuple(listed.capitals.values())
    names = (*listed.fields, *held_fields())
    return (*listed.capitals, *towns, *listed.cities, *listed.names, *listed.words, *names)


@cache
def seen() -> Wordings:
    raw: dict[str, list[str]] = json.loads((HERE / "seen.json").read_text("utf-8"))
    raw["unknown"] += unknown_requests()
    return {
        kind: tuple(dict.fromkeys(text for line in lines for text in expand(line)))
        for kind, lines in raw.items()
    }


@cache
def held_back() -> Wordings:
    found: Wordings = {}
    for name in FROZEN:
        raw = json.loads((SOURCE / name).read_text("utf-8"))["held_back"]
        found |= {kind: tuple(lines) for kind, lines in raw.items()}
    return found


@cache
def unknown_requests() -> tuple[str, ...]:
    """Things the demo model cannot do: every verb with every object of its kind."""
    raw = json.loads((HERE / "unknown.json").read_text("utf-8"))
    return tuple(
        line.replace("{x}", thing)
        for group in raw
        for line in group["lines"]
        for thing in group["things"]
    )


def expand(line: str) -> Iterator[str]:
    """Every text that a wording with `[a|b]` stands for."""
    parts = re.split(r"\[([^\]]*)\]", line)
    choices = [
        part.split("|") if odd else [part]
        for odd, part in zip(itertools.cycle((0, 1)), parts, strict=False)
    ]
    for chosen in itertools.product(*choices):
        yield re.sub(r" +([?,.]|$)", r"\1", re.sub(r"  +", " ", "".join(chosen))).strip()


def normal(text: str) -> str:
    """A wording without case and punctuation, for comparing."""
    return " ".join(re.findall(r"\{\w+\}|[^\W_]+|[+-]", text.lower()))


def core(text: str) -> str:
    """A wording without case, punctuation and the polite words that `dressed` may put around."""
    bare = f" {normal(text)} "
    around = [f" {normal(word)} " for word in (*PREFIXES, *SUFFIXES)]
    stripped = True
    while stripped:
        stripped = False
        for word in around:
            if bare.startswith(word) and bare != word:
                bare, stripped = bare[len(word) - 1 :], True
            if bare.endswith(word) and bare != word:
                bare, stripped = bare[: 1 - len(word)], True
    return bare.strip()


def dressed(text: str, rng: random.Random) -> str:
    """A seen wording as people vary it: polite words around it, another end, another case."""
    if rng.random() < 0.12:
        text = rng.choice(PREFIXES) + text
    bare = text.rstrip("?.!")
    roll = rng.random()
    if roll < 0.08 and not bare.endswith("}"):
        text = bare + rng.choice(SUFFIXES) + rng.choice(ENDS)
    elif roll < 0.35:
        text = bare + rng.choice(ENDS)
    return cased(text, rng)


def cased(text: str, rng: random.Random) -> str:
    capital = rng.random() < 0.5 and text[:1] != "{"
    return text[:1].upper() + text[1:] if capital else text


def pick(options: Sequence[T], rng: random.Random) -> T:
    return options[rng.randrange(len(options))]
