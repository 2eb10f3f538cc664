"""The commands of `trt-responses` with their options, read from the parsers themselves."""

from __future__ import annotations

import argparse
import importlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.cli.main import COMMANDS, module_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROGRAM = "trt-responses"
USUAL_GROUPS = ("positional arguments", "options")
SHARED_BY = 2
"""An argument that so many commands have in the same words is described once."""


class Argument(NamedTuple):
    """An argument or option, and the title of its group if it has one of its own."""

    action: argparse.Action
    group: str


class Command(NamedTuple):
    """One command: its name in full, what it does, its arguments and options."""

    name: str
    about: str
    arguments: tuple[Argument, ...]


def commands() -> Iterator[Command]:
    """Every command that does something, in the order of the help."""
    parser = argparse.ArgumentParser(prog=PROGRAM)
    added = parser.add_subparsers()
    for name, text in COMMANDS.items():
        importlib.import_module(module_of(name)).add(added, name, text)
    yield from _leaves(parser)


def _leaves(parser: argparse.ArgumentParser) -> Iterator[Command]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in below:
        for inner in action.choices.values():
            yield from _leaves(inner)
    if not below:
        shown = [
            Argument(action, "" if group.title in USUAL_GROUPS else str(group.title))
            for group in parser._action_groups
            for action in group._group_actions
            if action.help != argparse.SUPPRESS and action.dest != "help"
        ]
        yield Command(parser.prog, parser.description or "", tuple(shown))


def tables() -> str:
    """The arguments that several commands share, then each command with its own."""
    every = list(commands())
    counted = Counter(_row(argument) for command in every for argument in command.arguments)
    shared = _shared(counted)
    sections = [_section(command, shared) for command in every]
    return "\n".join(["## Shared arguments\n\n" + "".join(shared), *sections])


def _shared(counted: Counter[str]) -> list[str]:
    """The rows that stand for all their commands: for each name the most frequent one."""
    by_name: dict[str, str] = {}
    for row, times in counted.most_common():
        if times >= SHARED_BY:
            by_name.setdefault(row.partition(":")[0], row)
    return list(by_name.values())


def _section(command: Command, shared: Iterable[str]) -> str:
    rows = [_row(argument) for argument in command.arguments]
    own = "".join(row for row in rows if row not in shared)
    also = [row.split("`")[1].split()[0] for row in rows if row in shared and "`-" in row]
    if also:
        own += f"- Shared: {', '.join(f'`{name}`' for name in also)}.\n"
    return f"## {_synopsis(command)}\n\n{command.about}\n\n{own}"


def _synopsis(command: Command) -> str:
    positional = (one.action for one in command.arguments if not one.action.option_strings)
    places = [_place(action) for action in positional]
    return " ".join([command.name.removeprefix(f"{PROGRAM} "), *places])


def _place(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest).upper()
    return {"?": f"[{name}]", "*": f"[{name} …]"}.get(str(action.nargs or ""), name)


def _row(argument: Argument) -> str:
    action, group = argument
    names = ", ".join(action.option_strings) or _place(action)
    if action.option_strings and action.nargs != 0:
        names += f" {action.metavar or ','.join(action.choices or ()) or action.dest.upper()}"
    meaning = (action.help or "") % {"default": action.default, "prog": PROGRAM}
    group = group and f" ({group})"
    return f"- `{names}`{group}{': ' * bool(meaning)}{meaning}\n"
