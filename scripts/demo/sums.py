"""The family of sums that need `python`: called if a server has it, then answered.

Knows wordings and numbers; knows no token and no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.demo.asking import Source, think
from scripts.demo.conversation import Call, Dialogue, Exchange, Setting, Step, Turn

if TYPE_CHECKING:
    import random

SECONDS = (30, 30, 30, 5, 10, 60)
"""What a server's deadline may be; the first is the default."""
TOO_LARGE = "I cannot do that sum: it is too large for me, and python is not there."
WORDS = {"add": ("sum", "+"), "sub": ("difference", "-"), "multiply": ("product", "*")}


def python(source: Source) -> Dialogue:
    """A sum that is too large to know: `python` is called, or has answered, or is missing."""
    rng = source.rng
    kind, a, b, worth = _large(rng)
    word, sign = WORDS[kind]
    code = f"{a} {sign} {b}"
    user, wanted = source.say(kind, a=a, b=b), f"The user wants a {word}."
    roll = rng.random()
    if roll < 0.25:
        thoughts = think(wanted, "The numbers are large.", "There is no python.")
        return Dialogue("python", (Exchange(user, Turn(thoughts, TOO_LARGE)),))
    calling = think(wanted, "The numbers are large.", f"Ask python for {code}.")
    call = Turn(calling, call=Call("python", code, python=True))
    setting = Setting(python=rng.choice(SECONDS))
    if roll < 0.65:
        return Dialogue("python", (Exchange(user, call),), setting, (code,))
    final = f"{code} = {worth}."
    final_turn = Turn(think("Python has answered.", "I tell the user.", "Give the result."), final)
    exchange = Exchange(user, final_turn, (Step(call, (f"{worth}\n",)),))
    return Dialogue("python", (exchange,), setting, (final,))


def _large(rng: random.Random) -> tuple[str, int, int, int]:
    """A sum that the family of arithmetic does not have: of larger numbers, or a product."""
    kind = rng.choice(("add", "sub", "multiply", "multiply"))
    a, b = (rng.randint(2, 10 ** rng.randint(1, 6)) for _ in range(2))
    if kind == "multiply":
        return kind, a, b, a * b
    a += 21
    if kind == "add":
        return (kind, a, b, a + b) if rng.random() < 0.5 else (kind, b, a, a + b)
    return kind, max(a, b), min(a, b), abs(a - b)
