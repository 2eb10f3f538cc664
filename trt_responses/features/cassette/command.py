"""`trt-responses cassette`: turns what was recorded into a script or a pytest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.cli.commands import add_command
from trt_responses.features.cassette import convert
from trt_responses.features.cassette.exchanges import read

if TYPE_CHECKING:
    import argparse

    from trt_responses.cli.commands import Commands


def add(commands: Commands, name: str, text: str) -> None:
    """Add the command `cassette` and its options."""
    parser = add_command(commands, name, text, _convert, example="cassette cassette.jsonl --script")
    parser.add_argument("file", metavar="FILE", type=Path, help="File that `serve --record` wrote")
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--script", action="store_true", help="Script for `serve --script`")
    form.add_argument("--pytest", action="store_true", help="Test with the fixture")


def _convert(options: argparse.Namespace) -> int:
    write = convert.script if options.script else convert.pytest
    print(write(read(options.file)), end="")
    return 0
