"""`trt-responses export triton`. Parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.cli.commands import (
    ENGINES_DIR,
    VERSION_OF,
    add_command,
    add_group,
    number_from,
    settings_of,
)
from trt_responses.errors import UsageError
from trt_responses.fleet.triton_model import INPUTS, OUTPUTS
from trt_responses.prepare.shelf import shelf
from trt_responses.prepare.triton.repository import write_repository

if TYPE_CHECKING:
    import argparse

    from trt_responses.cli.commands import Commands


def add(parents: Commands, name: str, about: str) -> None:
    """Add the command `export` and its options."""
    example = "export triton demo model_repository"
    commands = add_group(parents, name, about, example=example)
    text = "write a model repository for Triton's Python backend"
    triton = add_command(commands, "triton", text, _triton, ENGINES_DIR, example=example)
    triton.add_argument("engine", metavar="NAME", help=VERSION_OF)
    triton.add_argument("directory", type=Path, metavar="DIR", help="Model repository")
    triton.add_argument("--name", metavar="NAME", help="Model name (default: the engine's name)")
    triton.add_argument(
        "--version",
        type=number_from(1),
        metavar="N",
        help="Number of the version (default: the next one)",
    )


def _triton(options: argparse.Namespace) -> int:
    settings = settings_of(options, "engines_dir")
    selection = shelf.select(settings.engines_dir, options.engine)
    if (dialect := selection.card.dialect) is not None:
        raise UsageError(
            f"{selection.card.label} uses a chat template ({dialect.family!r}), and Triton serves "
            "gpt-oss only; serve it with the embedded engine: "
            f"`trt-responses serve --engine {selection.card.name}`."
        )
    made = write_repository(
        options.directory,
        selection.card.name if options.name is None else options.name,
        engine=f"{selection.card.name}@{selection.card.version}",
        engines_dir=settings.engines_dir,
        version=options.version,
        settings=settings.model_dump(include={"context_tokens", "slots", "threads"}),
        inputs=INPUTS,
        outputs=OUTPUTS,
    )
    print(
        f"{made} serves {selection.card.label}. Triton's Python needs the package trt_responses "
        f"and the engines at {settings.engines_dir.resolve()}; see docs/triton.md."
    )
    return 0
