"""`trt-responses export triton`. Parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.cli.commands import ENGINES_DIR, add_command, add_group, settings_of
from trt_responses.errors import StartupError
from trt_responses.fleet.triton_model import INPUTS, OUTPUTS
from trt_responses.prepare.shelf import shelf
from trt_responses.prepare.triton.repository import write_repository

if TYPE_CHECKING:
    import argparse

    from trt_responses.cli.commands import Commands


def add(parents: Commands, name: str, about: str) -> None:
    """Add the command `export` and its options."""
    commands = add_group(parents, name, about)
    text = "write a model repository for Triton's Python backend"
    triton = add_command(commands, "triton", text, _triton, ENGINES_DIR)
    triton.add_argument("engine", help="name of a prepared engine")
    triton.add_argument("directory", type=Path, help="the model repository")
    triton.add_argument("--name", help="name of the model; without: the engine's")
    triton.add_argument("--version", type=int, help="its number; without: the next one")


def _triton(options: argparse.Namespace) -> int:
    settings = settings_of(options, "engines_dir")
    selection = shelf.select(settings.engines_dir, options.engine)
    if options.version is not None and options.version < 1:
        raise StartupError(f"A version is a number from 1 on, not {options.version}.")
    if (dialect := selection.card.dialect) is not None:
        raise StartupError(
            f"{selection.card.label} speaks {dialect.family!r} by a chat template, and a server "
            "over Triton speaks to gpt-oss alone: serve it with the embedded engine, "
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
        f"{made} serves {selection.card.label}. Triton's Python needs the package trt_responses, "
        f"and the engines at {settings.engines_dir.resolve()}; docs/triton.md says the rest."
    )
    return 0
