"""One command of the command line, and the options that several commands share.

Help help_texts are noun phrases with the default in brackets; each help ends with an example.
"""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Any

from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    Run = Callable[[argparse.Namespace], int]
    """Runs a command. Returns the exit status."""

FLAGS = {
    "engine": ("NAME", "Prepared engine, NAME or NAME@N (default: the single one, or the demo)"),
    "host": ("HOST", "Address of the server (default: 127.0.0.1)"),
    "port": ("PORT", "Port of the server (default: 8000)"),
    "model": ("NAME,…", "Names of the model for clients, * for any (default: the engine's name)"),
    "engines_dir": ("DIR", "Directory of the prepared engines (default: engines)"),
    "frontends": ("N", "HTTP processes on one port over one engine, or `auto` (default: 1)"),
}
"""The settings that are flags too."""
WIDTH = 79


def add_command(
    commands: Commands,
    name: str,
    text: str,
    run: Run,
    *shared: argparse.ArgumentParser,
    example: str,
    more: str = "",
) -> argparse.ArgumentParser:
    """Add a command whose help and description are one sentence; shared options come first.
    `example` is its command line without the program's name, which stands behind `more`."""
    texts = help_texts(text, example, more)
    parser = commands.add_parser(name, help=text, parents=shared, **texts)
    parser.set_defaults(run=run)
    return parser


def add_group(commands: Commands, name: str, text: str, *, example: str) -> Commands:
    """Add a command that is a word before others."""
    parser = commands.add_parser(name, help=text, **help_texts(text, example))
    return parser.add_subparsers(required=True, metavar="COMMAND")


def help_texts(text: str, example: str, more: str = "") -> dict[str, Any]:
    """The description of a command, and its example at the end of the help, behind `more`."""
    about = textwrap.fill(f"{text[0].upper()}{text[1:]}.", WIDTH)
    end = f"{more}\n\n" if more else ""
    return {
        "description": about,
        "epilog": f"{end}Example:\n  trt-responses {example}".replace("%", "%%"),
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def option(*names: str, **about: Any) -> argparse.ArgumentParser:
    """An option that several commands share; takes what `add_argument` takes."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(*names, **about)
    return parser


def add_settings(parser: argparse.ArgumentParser, *names: str) -> argparse.ArgumentParser:
    """Add settings as options: `engines_dir` is `--engines-dir`."""
    for name in names:
        metavar, text = FLAGS[name]
        parser.add_argument(flag(name), metavar=metavar, help=text)
    return parser


def flag(name: str) -> str:
    """The flag of a setting."""
    return f"--{name.replace('_', '-')}"


def number_from(least: int) -> Callable[[str], int]:
    """Parses a whole number of at least `least`, for `type=`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from {least} up")
        return number

    return parse


JSON = option("--json", action="store_true", help="JSON instead of a table")
ENGINES_DIR = add_settings(argparse.ArgumentParser(add_help=False), "engines_dir")
NAME = option("name", metavar="NAME", help="Name of the engine")
VERSION_OF = "Name of the engine, or NAME@N for one version"
RUNNING_SERVER = add_settings(argparse.ArgumentParser(add_help=False), "host", "port")


def settings_of(options: argparse.Namespace, *names: str) -> Settings:
    """The settings of the environment; for these names, options come before them."""
    given = {name: getattr(options, name) for name in names}
    return Settings.from_environment(flags={name: flag(name) for name in names}, **given)


def engines_dir_of(options: argparse.Namespace) -> Path:
    """The directory of engines that a command works on."""
    return settings_of(options, "engines_dir").engines_dir
