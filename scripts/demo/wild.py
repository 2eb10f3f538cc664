"""The family of questions that the model cannot answer, made of any words; and any name and text.

What is learnt is that a question is unknown unless it is of a known kind. Knows wordings and words;
knows no token and no model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.demo import words
from scripts.demo.asking import Source, plain
from scripts.demo.talk import unknown_turn
from scripts.demo.wordings import PREFIXES, pick, values

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from scripts.demo.conversation import Dialogue


@dataclass(frozen=True, slots=True)
class Wild:
    """The parts of questions. In lines {n} is a thing, {v} what is done, {a} how it is, {N} a name,
    {d} a number, {p} any text."""

    lines: tuple[str, ...]
    more: tuple[str, ...]
    things: tuple[str, ...]
    deeds: tuple[str, ...]
    manners: tuple[str, ...]
    small: tuple[str, ...]


@cache
def wild() -> Wild:
    raw = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    lines, more = tuple(raw.pop("lines")), tuple(raw.pop("more"))
    return Wild(lines, more, **{name: tuple(listed.split()) for name, listed in raw.items()})


def stranger(source: Source) -> Dialogue:
    """A question of no known kind: what it is made of may be any words."""
    rng = source.rng
    text = pick(wild().lines, rng)
    if rng.random() < 0.3:
        text = text.rstrip("?") + pick(wild().more, rng) + rng.choice(("?", "", ""))
    text = filled(text, rng)
    if rng.random() < 0.12:
        text = pick(PREFIXES, rng) + text
    roll = rng.random()
    if roll < 0.2:
        text = text.rstrip("?.!") + rng.choice(("", ".", "!", "?", "??", "..."))
    if rng.random() < 0.55:
        text = text[:1].upper() + text[1:]
    return plain("stranger", text, unknown_turn())


def filled(text: str, rng: random.Random) -> str:
    makes: Mapping[str, Callable[[], str]] = {
        "{n}": lambda: _thing(rng),
        "{v}": lambda: pick(wild().deeds, rng) if rng.random() < 0.6 else words.word(rng),
        "{a}": lambda: pick(wild().manners, rng) if rng.random() < 0.6 else words.word(rng),
        "{N}": lambda: name(rng),
        "{country}": lambda: pick(tuple(values().capitals), rng),
        "{d}": lambda: str(rng.randint(0, 10 ** rng.randint(1, 4))),
        "{p}": lambda: phrase(rng),
    }
    for slot, make in makes.items():
        while slot in text:
            text = text.replace(slot, make(), 1)
    return text


def _thing(rng: random.Random) -> str:
    roll = rng.random()
    if roll < 0.35:
        thing = pick(wild().things, rng)
    elif roll < 0.45:
        thing = pick(values().words, rng)
    else:
        thing = words.word(rng)
    if rng.random() < 0.2:
        thing = f"{words.word(rng)} {thing}"
    return thing


def name(rng: random.Random) -> str:
    """Any name: of the lists, or any word with a capital."""
    roll = rng.random()
    if roll < 0.35:
        return pick(values().names, rng)
    if roll < 0.45:
        return pick((*values().cities, *values().capitals), rng)
    return words.word(rng, capital=True)


def phrase(rng: random.Random, most: int = 6) -> str:
    """Any text: words of the lists and others, a number now and then."""
    parts = []
    for _ in range(rng.randint(1, most)):
        roll = rng.random()
        if roll < 0.3:
            parts.append(pick(values().words, rng))
        elif roll < 0.5:
            parts.append(pick((*wild().things, *wild().deeds, *wild().manners), rng))
        elif roll < 0.6:
            parts.append(pick(wild().small, rng))
        elif roll < 0.65:
            parts.append(str(rng.randint(0, 999)))
        elif roll < 0.7:
            parts.append(name(rng))
        else:
            parts.append(words.word(rng))
    return " ".join(parts)
