"""The judge of the demo model: 500 questions of strangers, which no training has seen.

Each line of `strangers.jsonl` is a request to a server, and a rule. An answer is `right` by the
rule, or `honest`: it says what the model is or cannot do, and offers what it can; else it is wrong.
Knows the Responses API; knows no training.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tests.support.asgi import Client, living
from trt_responses.app import create_app
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trt_responses.engine import Engine
    from trt_responses.feature import Feature

QUESTIONS = Path(__file__).parent / "strangers.jsonl"
MAX_TOKENS = 300
SANE = 200
"""The longest text that an argument or a value of any question here needs, in characters."""
HONEST = re.compile(r"\b(cannot|can't|do not know|don't know|unable to|a tiny demo model)\b", re.I)
OFFERS = re.compile(r"\bI can\b|\bfunction\b|\bpython\b")
"""What it can do, or what is missing for it."""
Grade = Literal["right", "honest", "wrong"]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stranger:
    """One question: the fields of a request, and the rule for its answer."""

    family: str
    request: Json
    rule: Json

    @property
    def body(self) -> Json:
        long = self.rule.get("long")
        return self.request | ({"instructions": agents_instructions(long)} if long else {})


@dataclass(frozen=True, slots=True)
class Mark:
    """What one answer was worth."""

    family: str
    grade: Grade
    ended: bool
    valid: bool | None
    """The arguments of its calls, or its JSON, are valid and of a sane length; None: has none."""
    answer: str = field(compare=False, default="")


def strangers() -> tuple[Stranger, ...]:
    with QUESTIONS.open(encoding="utf-8") as lines:
        return tuple(Stranger(**json.loads(line)) for line in lines)


async def marks(
    engine: Engine,
    questions: Sequence[Stranger],
    temperature: float,
    at_once: int,
    features: Sequence[Feature] = (),
) -> list[Mark]:
    """The mark of each answer, from a server over this engine, with what its card sets."""
    settings = Settings(store="memory://", model="demo", date="2025-06-28")
    places = asyncio.Semaphore(at_once)
    app = create_app(settings, engine=engine, features=features)
    async with living(app):
        client = Client(app)

        async def one(number: int, question: Stranger) -> Mark:
            common = {"model": "demo", "store": False, "max_output_tokens": MAX_TOKENS}
            drawn = {"temperature": temperature, "seed": number}
            async with places:
                reply = await client.create(**question.body, **common, **drawn)
            return mark(question, reply.json())

        return list(await asyncio.gather(*(one(n, q) for n, q in enumerate(questions))))


def mark(question: Stranger, response: Json) -> Mark:
    items = response.get("output", [])
    calls = [item for item in items if item["type"] == "function_call"]
    text = "".join(
        part["text"] for item in items if item["type"] == "message" for part in item["content"]
    )
    shown = text or " ".join(f"{call['name']}({call['arguments']})" for call in calls)
    ended = response.get("status") == "completed"
    grade = _grade(question.rule, text, calls) if ended else "wrong"
    return Mark(question.family, grade, ended, _valid(question, text, calls), shown)


def _grade(rule: Json, text: str, calls: Sequence[Json]) -> Grade:
    if "call" in rule:
        arguments = [_json(call["arguments"]) for call in calls]
        if [call["name"] for call in calls] == [rule["call"]]:
            return "right" if _plain(arguments[0]) == _plain(rule["arguments"]) else "wrong"
    elif "json" in rule:
        return "right" if _plain(_json(text)) == _plain(rule["json"]) else "wrong"
    if calls or not text or len(text) > 2 * SANE:
        return "wrong"
    found = [_says(text, wanted) for wanted in rule.get("right", ())]
    if found and (all(found) if rule.get("every") else any(found)):
        return "right"
    return "honest" if HONEST.search(text) and OFFERS.search(text) else "wrong"


def _says(text: str, wanted: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text, re.I))


def _plain(value: object) -> object:
    """A value without what careful people spell in two ways: case, quotes, a last stop."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, str):
        return value.strip(" .!?'\"").casefold()
    return value


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _valid(question: Stranger, text: str, calls: Sequence[Json]) -> bool | None:
    tools = {tool["name"]: tool["parameters"] for tool in question.request.get("tools", ())}
    if calls:
        return all(
            call["name"] in tools and _fits(_json(call["arguments"]), tools[call["name"]])
            for call in calls
        )
    form = question.request.get("text")
    return None if form is None else _fits(_json(text), form["format"]["schema"])


def _fits(value: object, schema: Mapping[str, Any]) -> bool:
    """Whether a value is of a schema, as far as the questions' schemas go, and of a sane length."""
    if "enum" in schema:
        return value in schema["enum"]
    match schema["type"]:
        case "object":
            parts = schema["properties"]
            return isinstance(value, dict) and (
                set(schema["required"]) <= set(value) <= set(parts)
                and all(_fits(one, parts[name]) for name, one in value.items())
            )
        case "array":
            return isinstance(value, list) and all(_fits(one, schema["items"]) for one in value)
        case "string":
            return isinstance(value, str) and len(value) <= SANE
        case "boolean":
            return isinstance(value, bool)
        case _:
            return isinstance(value, int) and not isinstance(value, bool)


def table(greedy: Sequence[Mark], drawn: Sequence[Mark]) -> str:
    """The marks as Markdown: greedy, and at temperature 1."""
    lines = [
        "| questions of strangers | number | right | honest | wrong | at 1: right or honest |",
        "|---|---|---|---|---|---|",
        *_rows(greedy, drawn),
        "",
        f"Ended: {_share(m.ended for m in greedy)}, at 1 {_share(m.ended for m in drawn)}. "
        f"Valid: {_share(m.valid for m in greedy if m.valid is not None)}, "
        f"at 1 {_share(m.valid for m in drawn if m.valid is not None)}.",
    ]
    return "\n".join(lines)


def _rows(greedy: Sequence[Mark], drawn: Sequence[Mark]) -> Iterator[str]:
    for family in (*dict.fromkeys(m.family for m in greedy), None):
        ours, others = ([m for m in some if family in (m.family, None)] for some in (greedy, drawn))
        shares = [_share(m.grade == grade for m in ours) for grade in ("right", "honest", "wrong")]
        at_one = _share(m.grade != "wrong" for m in others)
        yield f"| {family or '**all**'} | {len(ours)} | {' | '.join(shares)} | {at_one} |"


def figures(found: Sequence[Mark]) -> dict[str, float]:
    """Shares of all answers, for the report."""
    kinds = {grade: [m.grade == grade for m in found] for grade in ("right", "honest", "wrong")}
    valid = [m.valid for m in found if m.valid is not None]
    kinds |= {"ended": [m.ended for m in found], "valid": valid}
    return {name: round(sum(held) / max(1, len(held)), 4) for name, held in kinds.items()}


def _share(held: Any) -> str:
    listed = list(held)
    return f"{100 * sum(listed) / len(listed):.1f} %" if listed else "–"


def agents_instructions(tokens: int) -> str:
    """Long instructions, as an agent of a terminal has them: about so many tokens."""
    subjects = (
        *("The plan tool", "A sandboxed command", "The approval policy", "Each patch"),
        *("The final message", "A failing test", "The working directory", "Every file reference"),
        *("Your preamble", "The network setting"),
    )
    verbs = (
        *("must describe", "should never skip", "is expected to follow", "may require"),
        *("takes precedence over", "has to respect"),
    )
    things = (
        "the AGENTS.md files of nested directories",
        "commits that the user did not request",
        "small, focused edits with `apply_patch`",
        "existing conventions of the codebase",
        "a concise status of at most eight words",
        "verification before a task is finished",
        "unrelated bugs and broken formatting",
        "escalated permissions outside the workspace",
    )
    ends = (
        "unless instructed otherwise.",
        "and keeps going until the query is resolved.",
        "- do not guess or fabricate results.",
        "before yielding to the user.",
        "(see the section on validation).",
    )
    lines = ["You are a coding agent running in a terminal. Be precise, safe and helpful.", ""]
    places = len(subjects) * len(verbs) * len(things) * len(ends)
    for number in range(tokens // 18):
        at = number * 977 % places
        words = []
        for part in (subjects, verbs, things, ends):
            at, choice = divmod(at, len(part))
            words.append(part[choice])
        if number % 12 == 0:
            lines.append(f"\n## {subjects[number // 12 % len(subjects)]}\n")
        lines.append(f"- {' '.join(words)}")
    return "\n".join(lines)
