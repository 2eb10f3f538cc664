"""Families of anybody's tools: chosen by words, with arguments copied from the question; and told.

Most tools are made up: a verb, a thing, and parameters of any name. Knows declarations and words;
knows no token and no model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scripts.demo import calls, toolkit, wild, words
from scripts.demo.asking import Source, think
from scripts.demo.conversation import Call, Dialogue, Exchange, Setting, Step, Tool, Turn
from scripts.demo.talk import SMALL_TALK, unknown_turn
from scripts.demo.wordings import PREFIXES, SUFFIXES, pick, values

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Wide:
    """A kind of tool: its names, what it says of itself, the names of its parameters with the kind
    of value of each, and what people say to it. `{0}` is the value of the first parameter."""

    names: tuple[str, ...]
    notes: tuple[str, ...]
    parameters: tuple[str, ...]
    """`name|other name:kind`."""
    lines: tuple[str, ...]


class Lists(NamedTuple):
    """What tools are made of, and the values of their parameters by kind."""

    tools: tuple[Wide, ...]
    verbs: tuple[str, ...]
    names_of: Mapping[str, tuple[str, ...]]
    """Names of parameters by the kind of their values."""
    enums: tuple[tuple[str, ...], ...]
    kinds: Mapping[str, tuple[str, ...]]
    begins: tuple[str, ...]
    """Beginnings of sentences with the verb {v} and the thing {n} of a tool that is made up."""
    firsts: tuple[str, ...]
    """Ways to say the first value {x}, of the parameter {k}."""
    answers: tuple[str, ...]


@cache
def lists() -> Lists:
    raw = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    tools = ({name: tuple(listed) for name, listed in one.items()} for one in raw["tools"])
    return Lists(
        tuple(Wide(**one) for one in tools),
        tuple(raw["verbs"].split()),
        {kind: tuple(names.split()) for kind, names in raw["names_of"].items()},
        tuple(map(tuple, raw["enums"])),
        {kind: tuple(listed.split()) for kind, listed in raw["kinds"].items()},
        *(tuple(raw[name]) for name in ("begins", "firsts", "answers")),
    )


@cache
def judged() -> frozenset[str]:
    """Names of tools that only the judge's questions have: no tool here has one of them."""
    with (Path(__file__).parent / "strangers.jsonl").open(encoding="utf-8") as lines:
        requests = [json.loads(line)["request"] for line in lines]
    return frozenset(tool["name"] for request in requests for tool in request.get("tools", ()))


VALUE_KINDS = (
    *("text", "text", "word", "word", "name", "title", "id", "int", "int", "city", "email"),
    *("file", "date", "enum"),
)
CONNECTED = ("with", "and", "with the", "and the", ",")


def value(kind: str, rng: random.Random) -> object:
    """A value of a kind, as people write it."""
    match kind:
        case "text":
            return wild.phrase(rng)
        case "word":
            return words.word(rng) if rng.random() < 0.6 else pick(values().words, rng)
        case "name":
            return (
                pick(values().names, rng) if rng.random() < 0.7 else words.word(rng, capital=True)
            )
        case "title" | "place":
            return " ".join(words.word(rng, capital=True) for _ in range(rng.randint(1, 3)))
        case "city":
            return (
                pick(values().cities, rng) if rng.random() < 0.6 else words.word(rng, capital=True)
            )
        case "email":
            user = pick(values().names, rng).lower() if rng.random() < 0.7 else words.word(rng)
            return f"{user}@{pick(lists().kinds['host'], rng)}"
        case "int":
            return rng.choice((rng.randint(1, 20), rng.randint(1, 60), rng.randint(1, 10_000)))
        case "id":
            number = str(rng.randint(1, 10 ** rng.randint(2, 6)))
            return rng.choice(
                (
                    number,
                    number,
                    f"{rng.choice('ABCDKTX')}-{number}",
                    f"{words.word(rng)[:3].upper()}{number}",
                )
            )
        case "sum":
            return f"{rng.randint(1, 999)} {rng.choice('+-*/')} {rng.randint(1, 999)}"
        case "time":
            return rng.choice(
                (
                    f"{rng.randint(1, 12)}{rng.choice(('am', 'pm'))}",
                    f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}",
                    "noon",
                    "midnight",
                    f"{rng.randint(1, 12)} o'clock",
                )
            )
        case "date":
            return rng.choice(
                (
                    pick(lists().kinds["day"], rng),
                    pick(lists().kinds["day"], rng),
                    f"20{rng.randint(20, 29)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
                )
            )
        case "file":
            return f"{words.word(rng)}.{pick(lists().kinds['ending'], rng)}"
        case "language":
            return pick(lists().kinds["language"], rng)
        case "currency":
            return pick(lists().kinds["currency"], rng)
        case "room":
            return pick(lists().kinds["room"], rng) if rng.random() < 0.7 else words.word(rng)
        case "ticker":
            return "".join(rng.choices("ABCDEFGHIKLMNOPRSTUVX", k=rng.randint(2, 4)))
        case _:
            return pick(kind.split("/"), rng)


@dataclass(frozen=True, slots=True)
class Asked:
    """A tool, what somebody says to it, and the arguments that are meant."""

    tool: Tool
    text: str
    arguments: Mapping[str, object]

    @property
    def call(self) -> str:
        return json.dumps(self.arguments, ensure_ascii=False, separators=(",", ":"))

    @property
    def turn(self) -> Turn:
        given = " and ".join(f"{name} {one}" for name, one in self.arguments.items())
        name = self.tool.name
        thoughts = think("The user wants a function.", f"The function {name} fits.",
                         f"Call {name} with {given}.")  # fmt: skip
        return Turn(thoughts, call=Call(name, self.call))


def asked(rng: random.Random) -> Asked:
    """Something that one of the tools can do."""
    found = _listed(pick(lists().tools, rng), rng) if rng.random() < 0.6 else _made_up(rng)
    text = found.text
    if rng.random() < 0.12:
        text = pick(PREFIXES, rng) + text
    if rng.random() < 0.04 and "?" not in text:
        text += pick(SUFFIXES, rng)
    elif rng.random() < 0.2 and text[-1].isalnum():
        text += rng.choice((".", "!", "?"))
    if rng.random() < 0.5:
        text = text[:1].upper() + text[1:]
    return Asked(found.tool, text, found.arguments)


def _listed(wide: Wide, rng: random.Random) -> Asked:
    given, listed = dict[str, object](), dict[str, object]()
    for parameter in wide.parameters:
        names, kind = parameter.split(":")
        name = pick(names.split("|"), rng)
        given[name] = value(kind, rng)
        listed[name] = _schema(name, kind, rng)
    text = pick(wide.lines, rng)
    for at, one in enumerate(given.values()):
        text = text.replace(f"{{{at}}}", str(one))
    tool = Tool(pick(wide.names, rng), pick(wide.notes, rng), _parameters(listed))
    return Asked(tool, text, given)


def _made_up(rng: random.Random) -> Asked:
    """A tool of a verb and a thing, and a sentence that says both and each value."""
    verb = pick(lists().verbs, rng) if rng.random() < 0.8 else words.word(rng)
    thing = pick(wild.wild().things, rng) if rng.random() < 0.5 else words.word(rng)
    given: dict[str, object] = {}
    listed: Json = {}
    parts = []
    for at in range(rng.choice((1, 1, 1, 2, 2, 3))):
        kind = pick(VALUE_KINDS, rng)
        kind = "/".join(pick(lists().enums, rng)) if kind == "enum" else kind
        name = pick(lists().names_of.get(kind, ("mode", "state", "level", "type")), rng)
        if rng.random() < 0.06:
            name = words.word(rng)
        if name in given:
            break
        given[name] = one = value(kind, rng)
        listed[name] = _schema(name, kind, rng)
        spoken = name.replace("_", " ")
        if at == 0:
            parts.append(pick(lists().firsts, rng).replace("{k}", spoken).replace("{x}", str(one)))
        else:
            joint = pick(CONNECTED, rng)
            parts.append(f"{'' if joint == ',' else ' '}{joint} {spoken} {one}")
    begin = pick(lists().begins, rng).replace("{v}", verb).replace("{n}", thing)
    if len(given) == 1 and rng.random() < 0.25:
        begin, parts = thing, [f" {one}{f' {spoken[:3]}' if kind == 'int' else ''}"]
    notes = (
        f"{verb} a {thing}",
        f"{verb}s the {thing}",
        f"{verb} {thing}".capitalize(),
        f"{verb} the {thing} of a user".capitalize(),
    )
    name = rng.choice(
        (f"{verb}_{thing}", f"{verb}_{thing}", f"{thing}_{verb}", f"{verb}{thing.capitalize()}")
    )
    if name in judged():
        return _made_up(rng)
    return Asked(Tool(name, pick(notes, rng), _parameters(listed)), begin + "".join(parts), given)


def _schema(name: str, kind: str, rng: random.Random) -> Json:
    schema: Json = {"type": "integer" if kind == "int" else "string"}
    if "/" in kind:
        schema["enum"] = kind.split("/")
    if kind == "int" and rng.random() < 0.3:
        schema["type"] = "number"
    if rng.random() < 0.25:
        spoken = name.replace("_", " ")
        schema["description"] = rng.choice(
            (f"The {spoken}", f"{spoken}".capitalize(), f"{spoken} of it", f"the {spoken} to use")
        )
    return schema


def _parameters(listed: Json) -> str:
    schema = {"type": "object", "properties": listed, "required": [*listed]}
    return json.dumps(schema, ensure_ascii=False)


def tool(source: Source) -> Dialogue:
    """One tool, or several of which one fits."""
    rng = source.rng
    wanted = asked(rng)
    setting = Setting(tools=_beside(wanted.tool, rng, rng.choice((0, 0, 1, 2, 2, 3))))
    exchange = Exchange(wanted.text, wanted.turn)
    return Dialogue("tool", (exchange,), setting, (wanted.call,))


def with_others(tools: tuple[Tool, ...], rng: random.Random) -> tuple[Tool, ...]:
    """The tools among some that have nothing to do with them."""
    names = {tool.name for tool in tools}
    other = [one for one in (asked(rng).tool, asked(rng).tool) if one.name not in names][:1]
    return toolkit.shuffled([*tools, *other], rng)


def _beside(wanted: Tool, rng: random.Random, count: int) -> tuple[Tool, ...]:
    tools = [wanted]
    for _ in range(count):
        other = asked(rng).tool
        if other.name not in {each.name for each in tools} and not _alike(other.name, wanted.name):
            tools.append(other)
    rng.shuffle(tools)
    return tuple(tools)


def _alike(one: str, other: str) -> bool:
    """Whether two tools are of one kind: a question for one would fit the other."""
    return any(one in wide.names and other in wide.names for wide in lists().tools)


def tool_idle(source: Source) -> Dialogue:
    """Tools of which none fits: small talk, or what is unknown."""
    rng = source.rng
    base = (rng.choice(SMALL_TALK) if rng.random() < 0.5 else wild.stranger)(source)
    tools = _beside(asked(rng).tool, rng, rng.choice((0, 0, 1, 2)))
    return Dialogue("tool_idle", base.exchanges, Setting(tools=tools), base.copied)


def tool_barred(source: Source) -> Dialogue:
    """A request that may call nothing: the server writes the header of an answer behind a thought
    that would have called."""
    rng = source.rng
    base = tool(source) if rng.random() < 0.7 else rng.choice((calls.weather, calls.time))(source)
    *before, last = base.exchanges
    turn = Turn(last.turn.thoughts, unknown_turn().final)
    exchanges = (*before, Exchange(last.user, turn, last.steps))
    return Dialogue("tool_barred", exchanges, base.setting)


def tool_missing(source: Source) -> Dialogue:
    """What a tool could do, and none is declared, or another one."""
    rng = source.rng
    wanted = asked(rng)
    while wanted.tool.name in ("calculator", "do_math", "calc", "evaluate", "compute"):
        wanted = asked(rng)
    tools: tuple[Tool, ...] = ()
    if rng.random() < 0.4:
        tools = tuple(t for t in _beside(wanted.tool, rng, 2) if t.name != wanted.tool.name)
    exchange = Exchange(wanted.text, unknown_turn())
    return Dialogue("tool_missing", (exchange,), Setting(tools=tools))


def tool_told(source: Source) -> Dialogue:
    """The answer from what any function says, in any form: its words."""
    rng = source.rng
    wanted = asked(rng)
    answer = any_answer(rng)
    final = f"The function {wanted.tool.name} answered:\n{answer}"
    turn = Turn(think("The function has answered.", "I tell the user.", "Give the result."), final)
    step = Step(
        Turn(
            wanted.turn.thoughts,
            call=Call(wanted.tool.name, wanted.call, stored=rng.random() < 0.5),
        ),
        (answer,),
    )
    tools = _beside(wanted.tool, rng, rng.choice((0, 0, 1)))
    return Dialogue(
        "tool_told", (Exchange(wanted.text, turn, (step,)),), Setting(tools=tools), (answer,)
    )


def any_answer(rng: random.Random) -> str:
    roll = rng.random()
    if roll < 0.2:
        return pick(lists().answers, rng)
    if roll < 0.55:
        return wild.phrase(rng) + rng.choice(("", "", "."))
    pairs: Json = {}
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = pick(("word", "text", "int", "id", "name", "time", "email"), rng)
        key = (
            pick(lists().names_of.get(kind, ("time", "at", "until")), rng)
            if rng.random() < 0.7
            else words.word(rng)
        )
        pairs[key] = value(kind, rng)
    return json.dumps(pairs, ensure_ascii=False, separators=rng.choice(((",", ":"), (", ", ": "))))
