"""Families about functions: calls, refusals where none is declared, answers from results.

Knows declarations and wordings; knows no token and no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.demo import toolkit, words
from scripts.demo.asking import Source, calling, think
from scripts.demo.conversation import Call, Dialogue, Exchange, Setting, Step, Turn
from scripts.demo.wordings import pick, values

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from scripts.demo.conversation import Tool


def call_turn(kind: str, kit: toolkit.Kit, city: str | None, *, stored: bool = False) -> Turn:
    """The turn that calls a kit's function."""
    name = kit.tool.name
    if city is None:
        wanted = f"The user asks about the {'server' if kind == 'status' else 'files'}."
        thoughts = think(wanted, f"The function {name} takes nothing.", f"Call {name}.")
    else:
        wanted = f"The user asks for the {kind} in {city}."
        detail = f"The function {name} takes {kit.place}."
        thoughts = think(wanted, detail, calling(name, str(kit.place), city))
    return Turn(thoughts, call=Call(name, kit.arguments(city), stored))


def _called(
    family: str, kind: str, source: Source, neighbours: Sequence[toolkit.Kit] = (), **named: str
) -> Dialogue:
    rng = source.rng
    kit, city = toolkit.kit(kind, rng, **named), pick(values().cities, rng)
    tools = [kit.tool, *(other.tool for other in neighbours), *toolkit.others(rng)]
    exchange = Exchange(source.say(kind, city=city), call_turn(kind, kit, city))
    setting = Setting(tools=toolkit.shuffled(tools, rng))
    before = (answered(kind, kit, source),) if rng.random() < 0.15 else ()
    return Dialogue(family, (*before, exchange), setting, (kit.arguments(city),))


def weather(source: Source) -> Dialogue:
    return _called("weather", "weather", source)


def time(source: Source) -> Dialogue:
    return _called("time", "time", source)


def choice(source: Source) -> Dialogue:
    """Two functions, each of which calls a place what it likes."""
    rng = source.rng
    return _choice("choice", source, pick(toolkit.PLACES, rng), pick(toolkit.PLACES, rng))


def choice_apart(source: Source) -> Dialogue:
    """Two functions that call a place differently: the called one decides."""
    places = sorted(set(toolkit.PLACES))
    return _choice("choice_apart", source, *source.rng.sample(places, 2))


def _choice(family: str, source: Source, here: str, there: str) -> Dialogue:
    rng = source.rng
    kind, other = rng.choice((("weather", "time"), ("time", "weather")))
    near = [toolkit.kit(other, rng, place=there)]
    near += [toolkit.kit(k, rng) for k in ("status", "files") if rng.random() < 0.2]
    return _called(family, kind, source, near, place=here)


def no_arguments(source: Source) -> Dialogue:
    rng = source.rng
    kind, other = rng.choice((("status", "files"), ("files", "status")))
    kit = toolkit.kit(kind, rng)
    near = [toolkit.kit(k, rng).tool for k in (other, "weather", "time") if rng.random() < 0.3]
    tools = toolkit.shuffled([kit.tool, *near, *toolkit.others(rng, 1)], rng)
    exchange = Exchange(source.say(kind), call_turn(kind, kit, None))
    return Dialogue("no_arguments", (exchange,), Setting(tools=tools), (kit.tool.name,))


REFUSALS = {
    "weather": "I cannot look up the weather: no weather function is declared.",
    "time": "I cannot look up the time: no time function is declared.",
    "status": "I cannot look at the server: no function for it is declared.",
    "files": "I cannot list files: no function for it is declared.",
}


def not_declared(source: Source) -> Dialogue:
    rng = source.rng
    kind = rng.choice(("weather", "weather", "time", "time", "status", "files"))
    rest = [k for k in REFUSALS if k != kind and rng.random() < 0.25]
    tools = [toolkit.kit(k, rng).tool for k in rest] + toolkit.others(rng)
    wanted = {"status": "the server", "files": "the files"}.get(kind, f"the {kind}")
    thoughts = think(
        f"The user asks about {wanted}.", "I look at the functions.", f"No function for {wanted}."
    )
    city = pick(values().cities, rng)
    exchange = Exchange(source.say(kind, city=city), Turn(thoughts, REFUSALS[kind]))
    setting = Setting(tools=toolkit.shuffled(tools, rng))
    return Dialogue("not_declared", (exchange,), setting, known=(city,))


def strange_place(source: Source) -> Dialogue:
    """A place that no list has: it is copied into the call."""
    rng = source.rng
    kind = rng.choice(("weather", "time"))
    kit = toolkit.kit(kind, rng)
    city = source.stranger("places") if rng.random() < 0.4 else words.word(rng, capital=True)
    exchange = Exchange(source.say(kind, city=city), call_turn(kind, kit, city))
    tools = toolkit.shuffled([kit.tool, *toolkit.others(rng)], rng)
    return Dialogue("strange_place", (exchange,), Setting(tools=tools), (kit.arguments(city),))


def answered(kind: str, kit: toolkit.Kit, source: Source) -> Exchange:
    """A question, the call, the function's answer, and the answer from it."""
    rng = source.rng
    city = pick(values().cities, rng) if kit.place else None
    answer, worded = toolkit.REPORTS[kind](rng)
    final = worded.replace("{city}", city or "")
    thoughts = think("The function has answered.", "I tell the user.", "Give the result.")
    step = Step(call_turn(kind, kit, city, stored=rng.random() < 0.5), (answer,))
    return Exchange(source.say(kind, city=city), Turn(thoughts, final), (step,))


def after_tool(source: Source) -> Dialogue:
    rng = source.rng
    kind = rng.choice(("weather", "weather", "time", "status", "files"))
    kit = toolkit.kit(kind, rng)
    exchange = answered(kind, kit, source)
    near = [toolkit.kit(k, rng).tool for k in REFUSALS if k != kind and rng.random() < 0.15]
    tools = toolkit.shuffled([kit.tool, *near, *toolkit.others(rng, 1)], rng)
    before = (answered(kind, kit, source),) if rng.random() < 0.25 else ()
    copied = (str(exchange.turn.final),)
    return Dialogue("after_tool", (*before, exchange), Setting(tools=tools), copied)


def tools_for_show(rng: random.Random) -> tuple[Tool, ...]:
    """Functions that are declared and not needed."""
    near = [toolkit.kit(kind, rng).tool for kind in REFUSALS if rng.random() < 0.4]
    return toolkit.shuffled(near + toolkit.others(rng, 1), rng)
