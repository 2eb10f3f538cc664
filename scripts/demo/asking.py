"""How a family asks and thinks: the parts that all families are made of.

Knows wordings; knows no family.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scripts.demo.conversation import Dialogue, Exchange
from scripts.demo.wordings import Wordings, cased, dressed, pick, seen_fields, values

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from scripts.demo.conversation import Effort, Turn


@dataclass(frozen=True, slots=True)
class Source:
    """Where wordings and chance come from.

    `dress`: vary them, as in training. `strange`: by kind, what the model has no row for. `fields`:
    names for the properties of schemas.
    """

    wordings: Wordings
    rng: random.Random
    dress: bool = True
    strange: Mapping[str, Sequence[str]] = field(default_factory=lambda: values().strange)
    fields: Sequence[str] = field(default_factory=seen_fields)

    def say(self, kind: str, **slots: object) -> str:
        text = pick(self.wordings[kind], self.rng)
        text = dressed(text, self.rng) if self.dress else cased(text, self.rng)
        for slot, value in slots.items():
            text = text.replace(f"{{{slot}}}", str(value))
        return text

    def stranger(self, kind: str) -> str:
        return pick(self.strange[kind], self.rng)


def think(context: str, detail: str, key: str) -> Mapping[Effort, str]:
    """What decides the answer stands last, at every effort."""
    return {"low": key, "medium": f"{context} {key}", "high": f"{context} {detail} {key}"}


def calling(name: str, parameter: str, values: str) -> str:
    """What decides a call: the parameter stands behind the function that it belongs to."""
    return f"Call {name} with {parameter} {values}."


def plain(family: str, user: str, turn: Turn, copied: tuple[str, ...] = ()) -> Dialogue:
    return Dialogue(family, (Exchange(user, turn),), copied=copied)
