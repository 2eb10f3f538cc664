"""`trt-responses engine promote | rollback | prune | journal`. Parses, calls, prints."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from trt_responses.cli.load import add_load
from trt_responses.prepare.progress import megabytes
from trt_responses.prepare.shelf import promotion, shelf, versions
from trt_responses.settings import Settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_versions(commands: Commands) -> None:
    """Add the commands that change which version of an engine is served."""
    text = "serve this version of an engine, from the next start on"
    promote = _command(commands, "promote", text, _promote)
    promote.add_argument("version", metavar="N", help="its number, or its digest")
    promote.add_argument("--reason", default="", help="what the journal says of it")
    text = "serve the version that was promoted before, from the next start on"
    rollback = _command(commands, "rollback", text, _rollback)
    rollback.add_argument("--reason", default="", help="what the journal says of it")
    text = "remove versions but the promoted one, the one before it, and the newest others"
    prune = _command(commands, "prune", text, _prune)
    prune.add_argument("--keep", type=_count, default=1, metavar="N", help="how many others; 1")
    prune.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    add_load(commands)
    journal = _command(commands, "journal", "show every change of an engine's versions", _journal)
    journal.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _command(
    commands: Commands, name: str, text: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("name", metavar="NAME", help="name of the engine")
    parser.add_argument("--engines-dir", help=Settings.model_fields["engines_dir"].description)
    parser.set_defaults(run=run)
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    return Settings.from_environment(engines_dir=options.engines_dir)


def _promote(options: argparse.Namespace) -> int:
    wanted = f"{options.name}@{options.version}"
    card = promotion.promote(_settings(options).engines_dir, wanted, options.reason)
    print(f"{card.label} is promoted: servers serve it from their next start on")
    return 0


def _rollback(options: argparse.Namespace) -> int:
    card = promotion.rollback(_settings(options).engines_dir, options.name, options.reason)
    print(f"{card.label} is promoted again: servers serve it from their next start on")
    return 0


def _count(text: str) -> int:
    if (count := int(text)) < 0:
        raise ValueError
    return count


def _prune(options: argparse.Namespace) -> int:
    found = promotion.prune(
        _settings(options).engines_dir,
        options.name,
        options.keep,
        rehearse=options.dry_run,
    )
    for entry in found:
        would = "would remove" if options.dry_run else "removed"
        print(f"{would} {entry.label}, {megabytes(entry.size_bytes)}")
    if not found:
        print("nothing to remove")
    return 0


def _journal(options: argparse.Namespace) -> int:
    home = _settings(options).engines_dir / shelf.checked_name(options.name)
    found = versions.journal(home)
    if options.json:
        print(json.dumps([asdict(change) for change in found], indent=2))
        return 0
    table = Table("at", "change", "version", "digest", "reason")
    for change in found:
        number = "" if change.number is None else f"{options.name}@{change.number}"
        table.add_row(change.at[:19], change.act, number, change.version, change.reason)
    Console().print(table if found else f"Nothing has been written of {options.name}.")
    return 0
