"""The questions that the demo model knows, and the one right reply to each.

A family is a function from a `Source` to a dialogue; who asks decides between seen and held-back
wordings. Knows no token and no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.demo.agent import agent
from scripts.demo.calls import (
    after_tool,
    choice,
    choice_apart,
    no_arguments,
    not_declared,
    strange_place,
    time,
    weather,
)
from scripts.demo.objects import json_reply
from scripts.demo.prose import enum, prose
from scripts.demo.schemas import schema
from scripts.demo.several import after_two, one_call, two_calls
from scripts.demo.sums import python
from scripts.demo.talk import (
    arithmetic,
    capital,
    count,
    echo,
    greet,
    help_,
    name_not_told,
    name_three_turns,
    name_told,
    name_two_turns,
    strange_word,
    unknown,
    who,
)  # fmt: skip
from scripts.demo.wide import tool, tool_barred, tool_idle, tool_missing, tool_told
from scripts.demo.wild import stranger

if TYPE_CHECKING:
    from collections.abc import Callable

    from scripts.demo.asking import Source
    from scripts.demo.conversation import Dialogue

FAMILIES: dict[str, Callable[[Source], Dialogue]] = {
    "greet": greet, "who": who, "capital": capital, "echo": echo, "count": count,
    "arithmetic": arithmetic, "name_told": name_told, "name_two_turns": name_two_turns,
    "name_three_turns": name_three_turns, "name_not_told": name_not_told, "weather": weather,
    "time": time, "choice": choice, "choice_apart": choice_apart, "no_arguments": no_arguments,
    "not_declared": not_declared, "after_tool": after_tool, "two_calls": two_calls,
    "one_call": one_call, "after_two": after_two, "json": json_reply, "help": help_,
    "unknown": unknown, "strange_word": strange_word, "strange_place": strange_place,
    "schema": schema, "agent": agent, "python": python, "stranger": stranger, "prose": prose,
    "enum": enum, "tool": tool, "tool_idle": tool_idle, "tool_missing": tool_missing,
    "tool_told": tool_told, "tool_barred": tool_barred,
}  # fmt: skip
TOOLLESS = frozenset(FAMILIES) - {
    "weather", "time", "choice", "choice_apart", "no_arguments", "not_declared", "after_tool",
    "two_calls", "one_call", "after_two", "strange_place", "agent", "tool", "tool_idle",
    "tool_missing", "tool_told", "tool_barred",
}  # fmt: skip
