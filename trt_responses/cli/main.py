"""The command line, `trt-responses COMMAND`. Parses, calls, prints.

Decides nothing. Each command is in the module of its name, or in a feature's. It is loaded for that
command alone and has one function, `add`.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence

from trt_responses import __version__
from trt_responses.backends.installed import needed
from trt_responses.errors import StartupError, UsageError

COMMANDS = {
    "serve": "serve a prepared engine",
    "engine": "prepare engines, and manage their versions and adapters",
    "rollout": "move servers to a version, one after the other, and back if one refuses it",
    "keys": "make, list and revoke API keys",
    "encryption": "make keys of the store, and encrypt it with a new one",
    "migrate": "take the store back to the format of an earlier server, when no server runs",
    "chat": "chat with a model in the terminal, on any Responses API server",
    "export": "write a prepared engine for another server",
    "explain": "show how a response was made: prompt, ids, segments, repairs, times",
    "cassette": "turn what `serve --record` wrote into a script or a test",
    "drain": "stop a running server after its running responses, as a SIGTERM does",
    "doctor": "check what this machine can run, and say what is missing",
    "completion": "write a completion script for bash, zsh or fish",
    "prove": "prove an engine on this machine step by step, and write a report",
    "conform": "judge a server of Responses, chat or Messages by the published APIs",
    "mock": "play ids as the engine behind any server, to judge it without weights",
}

FEATURES = {
    name: f"trt_responses.features.{name}.command"
    for name in ("cassette", "rollout", "encryption", "migrate")
}
"""The commands that a feature brings."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0, 1 for a failure at work, 2 for wrong use, or
    the command's own. An error is printed in one sentence."""
    given = sys.argv[1:] if arguments is None else arguments
    # In place of a stream that is closed, as by `<&-`
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal may not know a sign
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            options = parser_of(given[0] if given else "").parse_args(given)
            status: int = options.run(options)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except StartupError as error:
        print(f"trt-responses: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 130
    except (OSError, UnicodeError) as error:
        sys.stdout = None  # else the exit writes to it again
        if isinstance(error, BrokenPipeError):  # such as `| head`, which closes its input early
            return 141
        print(f"trt-responses: {error}", file=sys.stderr)
        return 1
    return status


def module_of(command: str) -> str:
    """The module that adds a command."""
    return FEATURES.get(command, f"trt_responses.cli.{command}")


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of every command's name and of one command's options."""
    parser = argparse.ArgumentParser(
        prog="trt-responses",
        description="An OpenAI Responses API server for gpt-oss style models.",
        epilog="Settings are environment variables named TRT_RESPONSES_<NAME>;\n"
        "`trt-responses serve --help` lists them.\n\nExample:\n  trt-responses serve --port 8080",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__, help="Version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        if name == command:
            with needed(f"The command `{name}`"):
                module = importlib.import_module(module_of(name))
            module.add(commands, name, text)
        else:
            commands.add_parser(name, help=text)
    return parser
