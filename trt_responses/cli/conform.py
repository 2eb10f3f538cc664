"""`trt-responses conform`: the checks of `responses_conformance`, against any server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.backends.installed import needed
from trt_responses.cli.commands import add_command

with needed("The command `conform`", "client"):
    from responses_conformance import cli

if TYPE_CHECKING:
    from trt_responses.cli.commands import Commands


def add(commands: Commands, name: str, text: str) -> None:
    """Add the command `conform` and its options."""
    example = "conform http://127.0.0.1:8000/v1 --report report"
    parser = add_command(commands, name, text, cli.run, example=example, more=cli.MORE)
    cli.add_arguments(parser)
