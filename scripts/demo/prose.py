"""Families of objects out of sentences: facts in prose, and a word of a list that a sentence says.

Knows schemas and words; knows no token and no model.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scripts.demo import wide, wild, words
from scripts.demo.asking import Source, think
from scripts.demo.conversation import Dialogue, Exchange, Format, Setting, Turn
from scripts.demo.schemas import CHOICES, NAMES
from scripts.demo.wordings import pick, values

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

Json = dict[str, object]
JOBS = (
    *("nurse", "teacher", "doctor", "baker", "engineer", "driver"),
    *("cook", "painter", "writer", "farmer", "lawyer", "pilot"),
)


class Lists(NamedTuple):
    """Sentences with slots; of each slot the kind of its values, and names of its property."""

    fields: Mapping[str, tuple[str, ...]]
    lines: tuple[str, ...]
    kinds: Mapping[str, str]
    asks: tuple[str, ...]
    chosen: tuple[str, ...]
    """Sentences with the word {x} of a list, of the property {k}."""
    keys: tuple[str, ...]


@cache
def lists() -> Lists:
    raw = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    fields = {slot: tuple(names.split()) for slot, names in raw["fields"].items()}
    lines, asks, chosen = (tuple(raw[name]) for name in ("lines", "asks", "chosen"))
    return Lists(fields, lines, raw["kinds"], asks, chosen, tuple(raw["keys"].split()))


def prose(source: Source) -> Dialogue:
    """A sentence, and the object of what it says."""
    rng = source.rng
    if rng.random() < 0.3:
        return rng.choice((_counted, _flagged, _listed))(rng)
    text = pick(lists().lines, rng)
    reply: Json = {}
    listed: Json = {}
    for slot, kind in lists().kinds.items():
        if f"{{{slot}}}" not in text:
            continue
        given = _value(kind, slot, rng)
        text = text.replace(f"{{{slot}}}", str(given))
        name = pick(lists().fields[slot], rng)
        if rng.random() < 0.06 or name in reply:
            continue
        reply[name] = given
        listed[name] = {"type": "integer" if isinstance(given, int) else "string"}
    if not reply:
        return prose(source)
    if rng.random() < 0.5:
        order = sorted(reply, key=lambda _: rng.random())
        reply, listed = {n: reply[n] for n in order}, {n: listed[n] for n in order}
    return _dialogue("prose", text, reply, listed, rng)


def _counted(rng: random.Random) -> Dialogue:
    """How many of each thing: the things are the names."""
    reply: Json = {}
    for _ in range(rng.randint(1, 3)):
        reply[wild.filled("{n}", rng).split()[-1]] = rng.choice(
            (rng.randint(0, 12), rng.randint(1, 90))
        )
    *first, last = (f"{many} {name}" for name, many in reply.items())
    text = f"{', '.join(first)} and {last}" if first else last
    begin = pick(("", "", "we have ", "there are ", "I see ", "in the box: ", "order "), rng)
    listed: Json = {name: {"type": "integer"} for name in reply}
    return _dialogue("prose", begin + text, reply, listed, rng)


def _flagged(rng: random.Random) -> Dialogue:
    """Whether it is so: true or false."""
    name = pick((*wild.wild().manners, "open", "active", "ready", "done", "paid", "closed"), rng)
    so = rng.random() < 0.5
    thing = wild.filled(pick(("the {n}", "my {n}", "{N}", "the {n} {N}", "it"), rng), rng)
    yes = (f"{thing} is {name}", f"yes, {thing} is {name}", f"is {thing} {name}? yes")
    no = (f"{thing} is not {name}", f"no, {thing} isn't {name}", f"is {thing} {name}? no")
    text = pick(yes if so else no, rng)
    reply: Json = {name: so}
    listed: Json = {name: {"type": "boolean"}}
    if thing != "it" and rng.random() < 0.4:
        said = thing.split()[-1]
        key = pick(("name", "thing", "item", "subject", "who"), rng)
        reply, listed = {key: said} | reply, {key: {"type": "string"}} | listed
    return _dialogue("prose", text, reply, listed, rng)


def _listed(rng: random.Random) -> Dialogue:
    """Several of a kind: a list."""
    kind = pick(("word", "word", "name", "int", "city"), rng)
    many = [wide.value(kind, rng) for _ in range(rng.randint(1, 4))]
    names = {"name": "names people guests users", "int": "numbers values scores ids"}
    name = pick(names.get(kind, "words items things labels topics").split(), rng)
    if kind == "city":
        name = pick(("cities", "places", "towns"), rng)
    joint = ", " if rng.random() < 0.6 else " and "
    begin = pick((f"{name}: ", f"the {name} are ", "", "we have "), rng)
    items = {"type": "integer" if kind == "int" else "string"}
    text = begin + joint.join(map(str, many))
    listed: Json = {name: {"type": "array", "items": items}}
    return _dialogue("prose", text, {name: many}, listed, rng)


def enum(source: Source) -> Dialogue:
    """A sentence with one word of a list, and perhaps more such lists."""
    rng = source.rng
    texts, reply, listed = list[str](), dict[str, object](), dict[str, object]()
    for _ in range(rng.choice((1, 1, 1, 2))):
        choices = (
            list(pick((*CHOICES, *wide.lists().enums), rng))
            if rng.random() < 0.45
            else _any_words(rng)
        )
        rng.shuffle(choices)
        name = pick(lists().keys, rng) if rng.random() < 0.6 else words.word(rng)
        if name in reply or any(choice in " ".join(texts) for choice in choices):
            break
        reply[name] = chosen = pick(choices, rng)
        listed[name] = {"type": "string", "enum": choices}
        text = (
            pick(lists().chosen, rng)
            .replace("{k}", name)
            .replace("{n}", wild.filled("{n}", rng))
            .replace("{x}", chosen)
        )
        texts.append(text)
    return _dialogue("enum", " ".join(texts), reply, listed, rng)


def _choices() -> tuple[tuple[str, ...], ...]:
    return (*CHOICES, *wide.lists().enums)


def _any_words(rng: random.Random) -> list[str]:
    capital = rng.random() < 0.15
    makes = (
        lambda: pick(values().words, rng),
        lambda: words.word(rng, capital=capital),
        lambda: pick(wild.wild().manners, rng),
    )
    return list(dict.fromkeys(rng.choice(makes)() for _ in range(rng.randint(2, 4))))


def _value(kind: str, slot: str, rng: random.Random) -> object:
    if kind == "year":
        return rng.randint(1900, 2025)
    if slot == "age":
        return rng.randint(1, 99)
    if slot == "job" and rng.random() < 0.6:
        return pick(JOBS, rng)
    if slot == "person" and rng.random() < 0.25:
        return f"{wide.value('name', rng)} {words.word(rng, capital=True)}"
    return wide.value(kind, rng)


def _dialogue(family: str, text: str, reply: Json, listed: Json, rng: random.Random) -> Dialogue:
    text = pick(lists().asks, rng) + text
    if rng.random() < 0.5:
        text = text[:1].upper() + text[1:]
    schema = {
        "type": "object",
        "properties": listed,
        "required": [*listed],
        "additionalProperties": False,
    }
    form = Format(
        pick((*NAMES, "extract", "extraction"), rng),
        json.dumps(schema, ensure_ascii=False, separators=(",", ":")),
    )
    thoughts = think("The user wants an object.", "I look for each name.", "Fill in the schema.")
    final = json.dumps(reply, ensure_ascii=False, separators=(",", ":"))
    exchange = Exchange(text, Turn(thoughts, final))
    return Dialogue(family, (exchange,), Setting(format=form), _copied(reply))


def _copied(reply: Json) -> tuple[str, ...]:
    """What the object has of the sentence, as it spells it."""
    values = [
        one for value in reply.values() for one in (value if isinstance(value, list) else [value])
    ]
    return tuple(json.dumps(one, ensure_ascii=False).strip('"') for one in values)
