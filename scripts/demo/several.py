"""Families about two places at once: two calls in a turn or one after the other, and their answer.

Knows declarations and wordings; knows no token and no model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scripts.demo import toolkit
from scripts.demo.asking import Source, calling, think
from scripts.demo.calls import time, weather
from scripts.demo.conversation import Call, Dialogue, Exchange, Setting, Step, Turn
from scripts.demo.wordings import values

if TYPE_CHECKING:
    import random

    from scripts.demo.conversation import Tool

ALLOWED = 3
"""Calls in one turn, in the examination: one more than any question here needs."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """A question about two cities, and the function that answers for each."""

    kind: str
    kit: toolkit.Kit
    cities: tuple[str, str]
    user: str
    tools: tuple[Tool, ...]

    def calls(self, rng: random.Random) -> tuple[Call, Call]:
        stored = rng.random() < 0.5
        one, other = (
            Call(self.kit.tool.name, self.kit.arguments(city), stored) for city in self.cities
        )
        return one, other

    def both(self, calls: tuple[Call, Call]) -> Turn:
        """The turn that calls for both cities at once, where it may."""
        one, other = self.cities
        name = self.kit.tool.name
        thoughts = think(
            f"The user asks for the {self.kind} in {one} and {other}.",
            f"The function {name} takes {self.kit.place}.",
            calling(name, str(self.kit.place), f"{one} and {other}"),
        )
        return Turn(thoughts, call=calls[0], more=calls[1:])

    def second(self, call: Call) -> Turn:
        """The turn that calls for the second city, when the first has been answered."""
        name, other = self.kit.tool.name, self.cities[1]
        thoughts = think(
            f"The {self.kind} in {other} is missing.",
            f"The function {name} takes {self.kit.place}.",
            calling(name, str(self.kit.place), other),
        )
        return Turn(thoughts, call=call)

    def report(self, rng: random.Random) -> tuple[tuple[str, str], str]:
        """What the function answers for each city, and how the model words both."""
        texts, worded = zip(
            *(toolkit.PLAIN_REPORTS[self.kind](rng) for _ in self.cities), strict=True
        )
        reports = (
            text.replace("{city}", city) for text, city in zip(worded, self.cities, strict=True)
        )
        return (texts[0], texts[1]), " ".join(reports)


def _pair(source: Source) -> _Pair:
    rng = source.rng
    kind, idle = rng.choice((("weather", "time"), ("time", "weather")))
    kit = toolkit.kit(kind, rng)
    one, other = rng.sample(values().cities, 2)
    near = [toolkit.kit(idle, rng).tool] if rng.random() < 0.3 else []
    tools = toolkit.shuffled([kit.tool, *near, *toolkit.others(rng, 1)], rng)
    user = source.say(f"{kind}_two", city=one, other=other)
    return _Pair(kind, kit, (one, other), user, tools)


def two_calls(source: Source) -> Dialogue:
    """Nothing is called yet, or the first city is answered and the second is missing."""
    rng, pair = source.rng, _pair(source)
    calls = pair.calls(rng)
    called = tuple(replace(call, stored=False) for call in calls)
    setting = Setting(tools=pair.tools)
    if rng.random() < 0.6:
        turn = pair.both((called[0], called[1]))
        copied = tuple(call.arguments for call in called)
        exchange = Exchange(pair.user, turn)
        return Dialogue("two_calls", (exchange,), setting, copied, most_calls=ALLOWED)
    answers, _ = pair.report(rng)
    first = Step(replace(pair.both(calls), more=()), answers[:1])
    exchange = Exchange(pair.user, pair.second(called[1]), (first,))
    return Dialogue("two_calls", (exchange,), setting, (called[1].arguments,), most_calls=ALLOWED)


def after_two(source: Source) -> Dialogue:
    """Both cities are answered, after two calls in a turn or after two turns."""
    rng, pair = source.rng, _pair(source)
    calls = pair.calls(rng)
    answers, final = pair.report(rng)
    both = pair.both(calls)
    steps: tuple[Step, ...] = (Step(both, answers),)
    if rng.random() < 0.5:
        first, second = replace(both, more=()), pair.second(calls[1])
        steps = (Step(first, answers[:1]), Step(second, answers[1:]))
    thoughts = think("Both functions have answered.", "I tell the user.", "Give both results.")
    exchange = Exchange(pair.user, Turn(thoughts, final), steps)
    return Dialogue("after_two", (exchange,), Setting(tools=pair.tools), (final,))


def one_call(source: Source) -> Dialogue:
    """A question about one city, where more calls than one would be allowed."""
    base = source.rng.choice((weather, time))(source)
    return replace(base, family="one_call", most_calls=ALLOWED)
