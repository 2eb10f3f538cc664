"""The commands of `trt-responses` with their options, read from the parsers themselves."""

from __future__ import annotations

import argparse
import importlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.cli.main import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROGRAM = "trt-responses"
SHARED_BY = 3
"""An option that so many commands have in the same words is described once."""


class Command(NamedTuple):
    """One command: its name in full, what it does, its arguments and options."""

    name: str
    about: str
    actions: tuple[argparse.Action, ...]


def commands() -> Iterator[Command]:
    """Every command that does something, in the order of the help."""
    parser = argparse.ArgumentParser(prog=PROGRAM)
    added = parser.add_subparsers()
    for name, text in COMMANDS.items():
        importlib.import_module(f"trt_responses.cli.{name}").add(added, name, text)
    yield from _leaves(parser)


def _leaves(parser: argparse.ArgumentParser) -> Iterator[Command]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in below:
        for inner in action.choices.values():
            yield from _leaves(inner)
    if not below:
        shown = [a for a in parser._actions if a.help != argparse.SUPPRESS and a.dest != "help"]
        yield Command(parser.prog, parser.description or "", tuple(shown))


def tables() -> str:
    """The options that several commands share, then each command with its own."""
    every = list(commands())
    counted = Counter(_row(action) for command in every for action in command.actions)
    shared = [row for row, times in counted.items() if times >= SHARED_BY and "`--" in row]
    sections = [_section(command, shared) for command in every]
    return "\n".join(["## Shared options\n\n" + "".join(shared), *sections])


def _section(command: Command, shared: Iterable[str]) -> str:
    rows = [_row(action) for action in command.actions]
    own = "".join(row for row in rows if row not in shared)
    also = [row.split("`")[1].split()[0] for row in rows if row in shared]
    if also:
        own += f"- Shared: {', '.join(f'`{name}`' for name in also)}.\n"
    return f"## {_synopsis(command)}\n\n{command.about}\n\n{own}"


def _synopsis(command: Command) -> str:
    places = [_place(action) for action in command.actions if not action.option_strings]
    return " ".join([command.name.removeprefix(f"{PROGRAM} "), *places])


def _place(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest).upper()
    return {"?": f"[{name}]", "*": f"[{name} …]"}.get(str(action.nargs or ""), name)


def _row(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings) or _place(action)
    if action.option_strings and action.nargs != 0:
        names += f" {action.metavar or ','.join(action.choices or ()) or action.dest.upper()}"
    meaning = (action.help or "") % {"default": action.default, "prog": PROGRAM}
    return f"- `{names}`{': ' * bool(meaning)}{meaning}\n"
