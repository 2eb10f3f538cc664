"""Turns with calls, as published templates write them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support import template_forms
from tests.support.template_families import checkpoint
from tests.support.template_turns import WEATHER
from trt_responses.dialects.templates.pieces import common, pieces
from trt_responses.dialects.templates.write.conversation import THOUGHT_KEYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.dialects.templates.families import Family
    from trt_responses.dialects.templates.read.reader import Begins

    Json = dict[str, Any]

TURNS: list[tuple[str, list[Any]]] = [
    ("", [{"city": "Oslo"}]),
    ("", [{"city": "a b", "days": -3, "warm": True}, {"city": "Rom", "list": [1, 2]}]),
    ("Hello there.", [{"ratio": 0.5, "city": "<b> & {x}"}, {}, {"maybe": None}]),
    ("", [{"city": 'it\'s "so",\n[1]', "object": {"a": "b"}}]),
]
"""Each with its text and the arguments of its calls."""
SPEC: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather.",
        "parameters": {
            **WEATHER,
            "properties": {
                key: {"description": "one", **one}
                for key, one in WEATHER["properties"].items()  # type: ignore[attr-defined]
            },
        },
    },
}
USER = {"role": "user", "content": "Hi"}


class Written(NamedTuple):
    """A turn in the ids of its model."""

    ids: list[int]
    begins: Begins
    calls: list[Any]
    others: list[str]
    """What else the reader tells."""


def written(name: str, turn: tuple[str, list[Any]]) -> Written:
    family, (text, calls) = template_forms.family(name), turn
    assert family.calls is not None
    calls = calls if family.calls.several else calls[:1]
    shown, begins = _shown(name, text, [_call(family, n, one) for n, one in enumerate(calls)])
    if text and not _leads(shown, text, family):
        shown, begins = _shown(name, text := "", [_call(family, n, c) for n, c in enumerate(calls)])
    ids = checkpoint(name).tokeniser.encode(_ended(shown, family))
    return Written(ids, begins, calls, [f"final: {text}"] * bool(text))


def turn_text(name: str, text: str, calls: Sequence[Any], *, function: str = "get_weather") -> str:
    """A turn with calls, behind a prompt that has opened a thought if the template opens one."""
    family = template_forms.family(name)
    made = [_call(family, n, one, function) for n, one in enumerate(calls)]
    return _closing(name) + _ended(_shown(name, text, made)[0], family)


def answer(name: str, text: str, *, behind_result: bool = False) -> str:
    """An answer, at first or behind a tool's result."""
    family = template_forms.family(name)
    call = _call(family, 0, {"city": "Oslo"})
    result = {"role": "tool", "content": "1", "name": "get_weather", "tool_call_id": call["id"]}
    turns = [{"role": "assistant", "content": "", "tool_calls": [call]}, result]
    return _closing(name, turns if behind_result else ()) + _ended(text, family)


def _closing(name: str, behind: Sequence[Json] = ()) -> str:
    """A thought and its end, if a prompt opens one."""
    template, family = template_forms.template(name), template_forms.family(name)
    switch = {} if family.switch is None else {family.switch.name: family.switch.on}
    prompt = template.render([USER, *behind], None, empty_tools=family.empty_tools, **switch)
    opened, closed = family.thought or ("", "")
    return f"Hm.{closed}" if opened and prompt.rfind(opened) > prompt.rfind(closed) else ""


def _ended(shown: str, family: Family) -> str:
    ends = (*family.terminators, template_forms.SPECIAL["eos_token"])
    return shown if shown.rstrip().endswith(ends) else shown + ends[0]


def thinking(name: str, thought: str, text: str) -> tuple[list[int], Begins] | None:
    """A turn with a thought, and where its reader begins; None if the template shows none."""
    family = template_forms.family(name)
    shown, begins = _shown(name, text, [], thought)
    if thought not in shown:
        return None
    return checkpoint(name).tokeniser.encode(_ended(shown, family)), begins


def _leads(shown: str, text: str, family: Family) -> bool:
    """Whether the text stands in the turn, before the calls."""
    before = shown.partition("get_weather")[0]
    return text in before and not any(end in before for end in family.terminators)


def _call(family: Family, number: int, arguments: Any, name: str = "get_weather") -> Json:
    own = f"functions.{name}:{number}" if family.numbers_calls else f"{number:09d}"
    wanted = json.dumps(arguments) if family.arguments == "string" else arguments
    function = {"name": name, "arguments": wanted}
    return {"type": "function", "id": own, "function": function}


def _shown(name: str, text: str, calls: list[Json], thought: str = "") -> tuple[str, Begins]:
    """The turn as the template writes it behind its prompt, and where a reader of it begins."""
    template, family = template_forms.template(name), template_forms.family(name)
    own: Json = {"role": "assistant", "content": text}
    own |= ({"tool_calls": calls} if calls else {}) | dict.fromkeys(THOUGHT_KEYS, thought)
    switches: Json = {"empty_tools": family.empty_tools}
    if thought and family.switch is not None:
        switches[family.switch.name] = family.switch.on
    before = template.render([USER], [SPEC], add_generation_prompt=False, **switches)
    prompt = template.render([USER], [SPEC], **switches)
    whole = template.render([USER, own], [SPEC], add_generation_prompt=False, **switches)
    shown = whole[len("".join(common(pieces(before), pieces(whole)))) :]
    opening = prompt.removeprefix(before)
    marks = family.thought or ("", "")
    for head in (opening, opening.partition(marks[0])[0] if marks[0] else opening):
        if head and shown.startswith(head):
            rest = shown[len(head) :].lstrip()
            unwritten = bool(thought) and rest.startswith(thought)  # only a prompt has its mark
            begun = bool(marks[0]) and (head.rstrip().endswith(marks[0]) or unwritten)
            ended = rest.startswith(marks[1])
            return rest.removeprefix(marks[1]), "thought" if begun and not ended else "text"
    return shown.lstrip().removeprefix(marks[1]), "text"
