"""Families that need no function: greetings, capitals, echo, counting, sums, names.

Knows wordings and values; knows no token and no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.demo import words
from scripts.demo.asking import Source, plain, think
from scripts.demo.conversation import Dialogue, Exchange, Turn
from scripts.demo.wordings import pick, values

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

GREETING = "Hello! How can I help you today?"
SELF = "I am a tiny demo model with the gpt-oss architecture, trained by trt_responses."
ABLE = (
    "greet you, count, add and subtract small numbers, repeat words, "
    "name capitals, remember your name and call functions."
)
SKILLS = f"I am a tiny demo model. I can {ABLE}"
UNKNOWN = f"I am a tiny demo model and cannot do that, but I can {ABLE}"

DIFFERENCES = tuple((a, b) for a in range(21) for b in range(a + 1))


def greet(source: Source) -> Dialogue:
    thoughts = think("The user greets me.", "Nothing is asked.", "I greet back.")
    return plain("greet", source.say("greet"), Turn(thoughts, GREETING))


def who(source: Source) -> Dialogue:
    thoughts = think("The user asks about me.", "I am a demo model.", "I say who I am.")
    return plain("who", source.say("who"), Turn(thoughts, SELF))


def capital(source: Source) -> Dialogue:
    country, city = source.rng.choice(tuple(values().capitals.items()))
    key = f"The capital of {country} is {city}."
    thoughts = think("The user asks for a capital.", f"The country is {country}.", key)
    return plain("capital", source.say("capital", country=country), Turn(thoughts, key), (city,))


def echo(source: Source) -> Dialogue:
    words = " ".join(pick(values().words, source.rng) for _ in range(source.rng.randint(1, 4)))
    thoughts = think("The user wants an echo.", f"The words: {words}.", f"Repeat: {words}")
    return plain("echo", source.say("echo", words=words), Turn(thoughts, words), (words,))


def count(source: Source) -> Dialogue:
    rng = source.rng
    from_one = rng.random() < 0.2
    first = 1 if from_one else rng.randint(0, 17)
    last = rng.randint(first + 2, min(20, first + 11))
    numbers = ", ".join(str(n) for n in range(first, last + 1))
    key = f"Count from {first} to {last}."
    thoughts = think("The user wants me to count.", f"Start: {first}. Stop: {last}.", key)
    user = source.say("count_to" if from_one else "count", a=first, b=last)
    return plain("count", user, Turn(thoughts, numbers), (str(first), str(last)))


def sum_or_difference(rng: random.Random) -> tuple[str, int, int, str]:
    """Numbers from 0 to 20, every fact as often; a difference is never below zero here."""
    if rng.random() < 0.5:
        a, b = rng.randint(0, 20), rng.randint(0, 20)
        return "add", a, b, f"{a} + {b} = {a + b}"
    a, b = rng.choice(DIFFERENCES)
    return "sub", a, b, f"{a} - {b} = {a - b}"


def arithmetic(source: Source) -> Dialogue:
    kind, a, b, worked = sum_or_difference(source.rng)
    word = "sum" if kind == "add" else "difference"
    thoughts = think(f"The user wants a {word}.", f"The numbers are {a} and {b}.", f"{worked}.")
    user = source.say(kind, a=a, b=b)
    return plain("arithmetic", user, Turn(thoughts, f"{worked}."), (str(a), str(b)))


def told_name(source: Source, name: str) -> Exchange:
    thoughts = think("The user tells me a name.", "I keep it in mind.", f"The name is {name}.")
    return Exchange(
        source.say("name_tell", name=name), Turn(thoughts, f"Nice to meet you, {name}.")
    )


def asked_name(source: Source, name: str) -> Exchange:
    thoughts = think("The user asks for the name.", "It was told before.", f"The name is {name}.")
    return Exchange(source.say("name_ask"), Turn(thoughts, f"Your name is {name}."))


def name_told(source: Source) -> Dialogue:
    name = pick(values().names, source.rng)
    return Dialogue("name_told", (told_name(source, name),), copied=(name,))


def name_two_turns(source: Source) -> Dialogue:
    name = pick(values().names, source.rng)
    exchanges = (told_name(source, name), asked_name(source, name))
    return Dialogue("name_two_turns", exchanges, copied=(name,))


def name_three_turns(source: Source) -> Dialogue:
    name = pick(values().names, source.rng)
    between = source.rng.choice(SMALL_TALK)(source).exchanges
    exchanges = [told_name(source, name), *between]
    if source.rng.random() < 0.3:
        exchanges.reverse()
    return Dialogue("name_three_turns", (*exchanges, asked_name(source, name)), copied=(name,))


def name_not_told(source: Source) -> Dialogue:
    thoughts = think("The user asks for the name.", "I look back.", "No name was told.")
    turn = Turn(thoughts, "You have not told me your name yet.")
    last = Exchange(source.say("name_ask"), turn)
    between = source.rng.choice(SMALL_TALK)(source).exchanges if source.rng.random() < 0.5 else ()
    return Dialogue("name_not_told", (*between, last))


def strange_word(source: Source) -> Dialogue:
    """What is to be repeated, remembered or looked up may be any word."""
    makes = (_strange_echo, _strange_echo, _strange_capital, _strange_name, _strange_name)
    return source.rng.choice(makes)(source)


def _strange_echo(source: Source) -> Dialogue:
    """Behind a blank, where words are spelled as in the question: else they may have other parts,
    which nobody can copy."""
    text = words.text(source.rng)
    thoughts = think("The user wants an echo.", f"The words: {text}.", f"Repeat: {text}")
    listed = set(text.split()) <= set(values().words)
    final = text if listed else f"Here you are: {text}"
    exchange = Exchange(source.say("echo", words=text), Turn(thoughts, final))
    return Dialogue("strange_word", (exchange,), copied=(text,))


def _strange_capital(source: Source) -> Dialogue:
    country = source.stranger("countries")
    exchange = Exchange(source.say("capital", country=country), unknown_turn())
    return Dialogue("strange_word", (exchange,))


def _strange_name(source: Source) -> Dialogue:
    """The user gives a name, and perhaps asks for it then."""
    rng = source.rng
    roll = rng.random()
    name = words.word(rng, capital=True)
    if roll < 0.5:
        name = source.stranger("names") if roll < 0.15 else pick(values().names, rng)
    if rng.random() < 0.15:
        name = name.lower()
    told = told_name(source, name)
    if rng.random() < 0.3:
        said = rng.choice((f"Hello {name}!", f"Hi {name}, how can I help?", f"Hello, {name}."))
        told = Exchange(told.user, Turn(told.turn.thoughts, said))
    exchanges: tuple[Exchange, ...] = (told,)
    if rng.random() < 0.5:
        between = rng.choice(SMALL_TALK)(source).exchanges if rng.random() < 0.3 else ()
        exchanges = (told, *between, asked_name(source, name))
    elif told.turn.final != f"Nice to meet you, {name}.":
        exchanges = (told_name(source, name),)
    return Dialogue("strange_word", exchanges, copied=(name,))


def help_(source: Source) -> Dialogue:
    thoughts = think("The user wants help.", "I know my skills.", "I say what I can do.")
    return plain("help", source.say("help"), Turn(thoughts, SKILLS))


def unknown(source: Source) -> Dialogue:
    return plain("unknown", source.say("unknown"), unknown_turn())


def unknown_turn() -> Turn:
    thoughts = think("The user wants something else.", "I look at my skills.", "It is no skill.")
    return Turn(thoughts, UNKNOWN)


SMALL_TALK: tuple[Callable[[Source], Dialogue], ...] = (
    greet,
    who,
    capital,
    echo,
    count,
    arithmetic,
)
