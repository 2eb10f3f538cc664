"""The command line, `trt-responses COMMAND`. Parses, calls, prints.

Decides nothing. Each command is in the module of its name, which is loaded for that command alone
and has one function, `add`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import TYPE_CHECKING

from trt_responses import __version__
from trt_responses.backends.installed import needed
from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "serve": "serve a prepared engine",
    "engine": "prepare engines, and look after their versions and adapters",
    "keys": "make, list and revoke API keys",
    "chat": "chat with a model in the terminal, over any server of the Responses API",
    "export": "write a prepared engine for another server",
    "explain": "show what a response was made of: prompt, ids, segments, repairs, times",
    "drain": "ask a running server to stop, as a SIGTERM does",
    "doctor": "say what this machine can run, and why not",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status. A fault is printed in one sentence."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        options = _parser(given[0] if given else "").parse_args(given)
        status: int = options.run(options)
    except StartupError as error:
        print(f"trt-responses: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `| head` has seen enough
        sys.stdout = None
        return 141
    return status


def _parser(command: str) -> argparse.ArgumentParser:
    """The parser of every command's name and of one command's options."""
    parser = argparse.ArgumentParser(
        prog="trt-responses",
        description="An OpenAI Responses API server for gpt-oss style models.",
        epilog="Every setting can also be given as TRT_RESPONSES_<NAME> in the environment.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        if name == command:
            with needed(f"The command `{name}`"):
                module = importlib.import_module(f"trt_responses.cli.{name}")
            module.add(commands, name, text)
        else:
            commands.add_parser(name, help=text)
    return parser
