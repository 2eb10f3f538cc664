"""One command of the command line, and the options that several commands share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    Run = Callable[[argparse.Namespace], int]
    """Runs a command. Returns the exit status."""


def add_command(
    commands: Commands, name: str, text: str, run: Run, *shared: argparse.ArgumentParser
) -> argparse.ArgumentParser:
    """Add a command whose help and description are one sentence; shared options come first."""
    about = text[0].upper() + text[1:] + "."
    parser = commands.add_parser(name, help=text, description=about, parents=shared)
    parser.set_defaults(run=run)
    return parser


def add_group(commands: Commands, name: str, text: str) -> Commands:
    """Add a command that is a word before others."""
    parser = commands.add_parser(name, help=text)
    return parser.add_subparsers(required=True, metavar="COMMAND")


def option(*names: str, **about: Any) -> argparse.ArgumentParser:
    """An option that several commands share; takes what `add_argument` takes."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(*names, **about)
    return parser


def add_settings(parser: argparse.ArgumentParser, *names: str) -> argparse.ArgumentParser:
    """Add settings as options: `engines_dir` is `--engines-dir`."""
    for name in names:
        flag = name.replace("_", "-")
        text = Settings.model_fields[name].description
        parser.add_argument(f"--{flag}", metavar=flag.upper(), help=text)
    return parser


JSON = option("--json", action="store_true", help="print JSON instead of a table")
ENGINES_DIR = add_settings(argparse.ArgumentParser(add_help=False), "engines_dir")
NAME = option("name", metavar="NAME", help="name of the engine")
RUNNING_SERVER = (
    option("--host", metavar="HOST", help="Address of the running server."),
    option("--port", metavar="PORT", help="Its port."),
)


def settings_of(options: argparse.Namespace, *names: str) -> Settings:
    """The settings of the environment; for these names, options come before them."""
    return Settings.from_environment(**{name: getattr(options, name) for name in names})
