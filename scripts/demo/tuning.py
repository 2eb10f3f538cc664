"""What a tuning draws: all families in other shares, and more of what the weights still got wrong.

A tuning begins with weights that know the families, and changes little. Its conversations are of
the same families, so that the exam's questions stay what they are. Knows families and settings;
knows no token and no model.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from scripts.demo import calls, data, terminal, toolkit, wide, wild, words
from scripts.demo.asking import Source, plain, think
from scripts.demo.conversation import Dialogue, Exchange, Setting, Step, Tool, Turn
from scripts.demo.families import FAMILIES
from scripts.demo.talk import unknown_turn
from scripts.demo.wordings import cased, pick, values

if TYPE_CHECKING:
    import random

DIFFERENCES = (
    "difference of {a} and {b}", "{a} and {b}, the difference", "difference: {a}, {b}",
    "{a} and {b}: what is the difference?", "how far is it from {b} to {a}?",
    "how much more is {a} than {b}?", "by how much is {a} more than {b}?",
    "the difference of the numbers {a} and {b}", "subtract: {a}, {b}", "minus: {a} and {b}",
    "how big is the difference of {a} and {b}?", "and the difference of {a} and {b}?",
    "difference of {b} and {a}", "{a} without {b}", "the difference between {a} and {b}",
    "give me the difference between {a} and {b}", "and the difference between {b} and {a}?",
    "the difference between the numbers {a} and {b}", "which difference is between {a} and {b}?",
    "how big is the difference between {b} and {a}?",
    "between {a} and {b}, what is the difference?",
)  # fmt: skip
DOWN = (
    "count from {a} to {b}", "count down from {a} to {b}", "count back from {a} to {b}",
    "from {a} down to {b}", "count backwards from {a} to {b}", "from {a} to {b}",
)  # fmt: skip
DOMAINS = ("com", "org", "net", "de", "io", "edu", "co")
FOLLOWING = (
    "And in {city}?", "And {city}?", "What about {city}?", "How about {city}?", "And for {city}?",
    "The same for {city}.", "Now {city}.", "And what about {city}?", "And how is it in {city}?",
)  # fmt: skip
UNTHOUGHT = 0.5
"""How often a tool loop is without the thoughts before its calls."""
LONG = 0.04
"""How often the instructions are as long as an agent's."""


def difference(source: Source) -> Dialogue:
    rng = source.rng
    a = rng.randint(0, 20)
    b = rng.randint(0, a)
    worked = f"{a} - {b} = {a - b}"
    thoughts = think("The user wants a difference.", f"The numbers are {a} and {b}.", f"{worked}.")
    text = pick(DIFFERENCES, rng).replace("{a}", str(a)).replace("{b}", str(b))
    turn = Turn(thoughts, f"{worked}.")
    return plain("arithmetic", cased(_ended(text, rng), rng), turn, (str(a), str(b)))


def counted_down(source: Source) -> Dialogue:
    """Numbers that fall: counted upwards they would never reach the last one."""
    rng = source.rng
    last = rng.randint(0, 17)
    first = rng.randint(last + 2, min(20, last + 11))
    numbers = ", ".join(str(number) for number in range(first, last - 1, -1))
    key = f"Count from {first} to {last}."
    thoughts = think("The user wants me to count.", f"Start: {first}. Stop: {last}.", key)
    text = pick(DOWN, rng).replace("{a}", str(first)).replace("{b}", str(last))
    turn = Turn(thoughts, numbers)
    return plain("count", cased(_ended(text, rng), rng), turn, (str(first), str(last)))


def mail(source: Source) -> Dialogue:
    """A tool that sends mail, to any address; its text may be one word. Or no tool does."""
    rng = source.rng
    wanted = wide.asked(rng)
    while not any("@" in str(one) for one in wanted.arguments.values()):
        wanted = wide.asked(rng)
    text, given = wanted.text, dict[str, object]()
    for name, one in wanted.arguments.items():
        given[name] = new = _other(one, rng) if str(one) in text else one
        text = text.replace(str(one), str(new), 1)
    asked = wide.Asked(wanted.tool, text, given)
    tools: tuple[Tool, ...] = (asked.tool,)
    for _ in range(rng.choice((0, 0, 1, 2))):
        tools = wide.with_others(tools, rng)
    if rng.random() < 0.2:
        rest = tuple(t for t in tools if t != asked.tool and "mail" not in t.name.lower())
        return Dialogue("tool_missing", (Exchange(text, unknown_turn()),), Setting(tools=rest))
    return Dialogue("tool", (Exchange(text, asked.turn),), Setting(tools=tools), (asked.call,))


def one_value(source: Source) -> Dialogue:
    """A tool with one parameter, in few words or many: nothing comes behind its value."""
    wanted = wide.asked(source.rng)
    while len(wanted.arguments) > 1:
        wanted = wide.asked(source.rng)
    setting = Setting(tools=(wanted.tool,))
    return Dialogue("tool", (Exchange(wanted.text, wanted.turn),), setting, (wanted.call,))


def any_report(source: Source) -> Dialogue:
    """What a weather or time function answers in a form of its own: its words are the answer, or a
    sentence of them where they say all that such a sentence needs."""
    rng = source.rng
    kind = rng.choice(("weather", "weather", "time"))
    kit, city = toolkit.kit(kind, rng), pick(values().cities, rng)
    answer, sentence = wide.any_answer(rng), ""
    if rng.random() < 0.5:
        answer, sentence = _report(kind, city, rng)
    final = sentence or f"The {kind} in {city}: {answer}"
    thoughts = think("The function has answered.", "I tell the user.", "Give the result.")
    step = Step(calls.call_turn(kind, kit, city, stored=rng.random() < 0.5), (answer,))
    exchange = Exchange(source.say(kind, city=city), Turn(thoughts, final), (step,))
    tools = wide.with_others((kit.tool,), rng) if rng.random() < 0.3 else (kit.tool,)
    return Dialogue("after_tool", (exchange,), Setting(tools=tools), (final,))


def follow_up(source: Source) -> Dialogue:
    """The same question about another city, shortened: another call, and another sentence."""
    rng = source.rng
    kind = rng.choice(("weather", "weather", "time"))
    kit, stored = toolkit.kit(kind, rng), rng.random() < 0.5
    cities = rng.sample(values().cities, 2)
    following = cased(pick(FOLLOWING, rng).replace("{city}", cities[1]), rng)
    exchanges = []
    for city, text in zip(cities, (source.say(kind, city=cities[0]), following), strict=True):
        answer, sentence = _report(kind, city, rng)
        final = sentence or f"The {kind} in {city}: {answer}"
        thoughts = think("The function has answered.", "I tell the user.", "Give the result.")
        step = Step(calls.call_turn(kind, kit, city, stored=stored), (answer,))
        exchanges.append(Exchange(text, Turn(thoughts, final), (step,)))
    setting = Setting(tools=(kit.tool,))
    if rng.random() < 0.5:
        exchanges[1] = Exchange(following, calls.call_turn(kind, kit, cities[1]))
        return Dialogue(kind, tuple(exchanges), setting, (kit.arguments(cities[1]),))
    return Dialogue("after_tool", tuple(exchanges), setting, (final,))


def _report(kind: str, city: str, rng: random.Random) -> tuple[str, str]:
    """An object of three names or four, as the services of the world have them; and its sentence,
    which is empty where the object lacks the temperature or the sky."""
    clock = f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"
    pairs: list[tuple[str, object]] = [(pick(("city", "place", "location", "name"), rng), city)]
    degrees, sky = rng.randint(-9, 40), pick(toolkit.SKIES, rng)
    sentence, needed = f"It is {sky} and {degrees} degrees in {city}.", {degrees, sky}
    if kind == "time":
        sentence, needed = f"It is {clock} in {city}.", {clock}
        pairs += [("time", clock), ("zone", rng.choice(("UTC", "CET", "local")))]
    else:
        pairs += [
            (pick(("temperature", "temp", "temp_c", "degrees"), rng), degrees),
            (pick(("condition", "sky", "weather"), rng), sky),
            (pick(("humidity", "wind", "rain", "unit"), rng), rng.choice(("low", "C", "5 km/h"))),
        ]
    rng.shuffle(pairs)
    shown = dict(pairs[: rng.randint(3, 4)])
    return toolkit.dump(shown, rng), sentence if needed <= {*shown.values()} else ""


def _address(rng: random.Random) -> str:
    user = pick(values().names, rng).lower() if rng.random() < 0.5 else words.word(rng)
    if rng.random() < 0.25:
        user += rng.choice("._-") + words.word(rng)
    return f"{user}@{words.word(rng)}.{pick(DOMAINS, rng)}"


def _other(value: object, rng: random.Random) -> object:
    """Another address for an address; for a text of several words, now and then one word."""
    if "@" in str(value):
        return _address(rng)
    return words.word(rng) if " " in str(value) and rng.random() < 0.4 else value


def _ended(text: str, rng: random.Random) -> str:
    return text if text[-1] in "?!" else text + rng.choice(("", "", "?", "."))


MADE = {
    "difference": difference,
    "counted_down": counted_down,
    "mail": mail,
    "one_value": one_value,
    "any_report": any_report,
    "follow_up": follow_up,
}
MIX = {
    **data.MIX,
    **{"arithmetic": 30, "count": 16, "after_tool": 30, "after_two": 8, "schema": 200, "agent": 30},
    **{"tool": 150, "tool_told": 36, "tool_missing": 12, "stranger": 24, "prose": 90, "enum": 30},
    **{"difference": 36, "counted_down": 20, "mail": 34, "one_value": 40, "any_report": 28},
    "follow_up": 36,
}
"""How often a tuning draws each family and each of those above."""


def draw(source: Source) -> Dialogue:
    """A dialogue of some family in some setting."""
    rng = source.rng
    name = rng.choices(tuple(MIX), tuple(MIX.values()))[0]
    made = (MADE.get(name) or FAMILIES[name])(source)
    dialogue = _unthought(data.settled(made, source, bare=data.BARE.get(name, 0.55)), rng)
    if rng.random() >= LONG:
        return dialogue
    return dialogue.under(replace(dialogue.setting, instructions=handbook(rng)))


def handbook(rng: random.Random) -> str:
    """Instructions as long as an agent's: rules under headings, of up to 1,500 tokens."""
    notes = (*terminal.SKILLS, *terminal.PERMISSIONS, *(n for _, n in terminal.PARAMETERS.values()))
    lines = [pick(data.INSTRUCTIONS, rng)]
    for _ in range(round(2 ** rng.uniform(3, 6.3))):
        if rng.random() < 0.1:
            lines.append(f"\n## {words.text(rng, most=3)}\n")
        one = pick(notes if rng.random() < 0.5 else wild.wild().lines, rng)
        lines.append(f"- {wild.filled(one, rng)}")
    return "\n".join(lines)


def _unthought(dialogue: Dialogue, rng: random.Random) -> Dialogue:
    """The server's own python is called between its thoughts, which it keeps."""
    *earlier, last = dialogue.exchanges
    if dialogue.family == "python" or not last.steps or rng.random() >= UNTHOUGHT:
        return dialogue
    steps = tuple(map(_spaced, last.steps)) if rng.random() < 0.5 else last.steps
    return replace(dialogue, exchanges=(*earlier, replace(last, steps=steps, unthought=True)))


def _spaced(step: Step) -> Step:
    """The step as a client sends it that writes its calls' arguments anew, with blanks."""
    call, *more = (replace(c, arguments=_anew(c.arguments)) for c in step.turn.calls)
    return step._replace(turn=replace(step.turn, call=call, more=tuple(more)))


def _anew(arguments: str) -> str:
    return json.dumps(json.loads(arguments), ensure_ascii=False)
