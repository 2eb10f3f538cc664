"""The family of JSON replies: another family's answer, as the object that a format asks for.

Knows families and formats; knows no token and no model.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scripts.demo import toolkit
from scripts.demo.conversation import Dialogue, Effort, Exchange, Format, Setting, Turn
from scripts.demo.talk import SMALL_TALK, arithmetic, capital
from scripts.demo.wordings import pick, values

if TYPE_CHECKING:
    import random

    from scripts.demo.asking import Source

FORMAT_NAMES = ("answer", "result", "response", "reply", "output", "info", "schema")
CAPITAL_KEYS = (("country", "capital"), ("country", "city"), ("city", "country"), ("capital",),
                ("city",), ("capital", "country"))  # fmt: skip
NUMBER_KEYS = ("answer", "result", "number", "value")
TEXT_KEYS = ("answer", "reply", "message", "text", "response")


def json_reply(source: Source) -> Dialogue:
    """The plain answer of another family, as the object that the format asks for."""
    rng = source.rng
    roll = rng.random()
    if roll < 0.4:
        base, reply = _capital_object(source)
        fields = dict.fromkeys(reply, "string")
    elif roll < 0.75:
        base = arithmetic(source)
        result = int(str(base.exchanges[-1].turn.final).rstrip(".").rsplit(" ", 1)[-1])
        key = pick(NUMBER_KEYS, rng)
        reply, fields = {key: result}, {key: rng.choice(("integer", "number"))}
    else:
        base = rng.choice(SMALL_TALK)(source)
        key = pick(TEXT_KEYS, rng)
        reply, fields = {key: base.exchanges[-1].turn.final}, {key: "string"}
    return _as_json(base, json.dumps(reply, ensure_ascii=False, separators=(",", ":")), fields, rng)


def _capital_object(source: Source) -> tuple[Dialogue, dict[str, object]]:
    base = capital(source)
    city = base.copied[0]
    country = next(land for land, town in values().capitals.items() if town == city)
    keys = source.rng.choice(CAPITAL_KEYS)
    return base, {key: country if key == "country" else city for key in keys}


def _as_json(base: Dialogue, reply: str, fields: dict[str, str], rng: random.Random) -> Dialogue:
    schema: dict[str, object] = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in fields.items()},
    }
    if rng.random() < 0.8:
        schema |= {"required": list(fields)}
    if rng.random() < 0.6:
        schema |= {"additionalProperties": False}
    form = Format(pick(FORMAT_NAMES, rng), toolkit.dump(schema, rng))
    spoken = base.exchanges[-1]
    thoughts: dict[Effort, str] = {
        "low": f"{spoken.turn.thoughts['low']} As JSON.",
        "medium": f"{spoken.turn.thoughts['medium']} As JSON.",
        "high": f"{spoken.turn.thoughts['high']} As JSON.",
    }
    exchange = Exchange(spoken.user, Turn(thoughts, reply))
    copied = () if base.family == "arithmetic" else base.copied  # the reply has only the result
    return Dialogue("json", (exchange,), Setting(format=form), copied)
