"""`trt-responses engine promote | rollback | prune | journal`. Parses, calls, prints."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from trt_responses.cli.commands import ENGINES_DIR, JSON, NAME, add_command, settings_of
from trt_responses.cli.load import add_load
from trt_responses.prepare.progress import megabytes
from trt_responses.prepare.shelf import promotion, shelf, versions

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from trt_responses.cli.commands import Commands


def add_versions(commands: Commands) -> None:
    """Add the commands that change which version of an engine is served."""
    text = "serve this version of an engine, from the next start on"
    promote = add_command(commands, "promote", text, _promote, NAME, ENGINES_DIR)
    promote.add_argument("version", metavar="N", help="its number, or its digest")
    promote.add_argument("--reason", default="", help="what the journal says of it")
    text = "serve the version that was promoted before, from the next start on"
    rollback = add_command(commands, "rollback", text, _rollback, NAME, ENGINES_DIR)
    rollback.add_argument("--reason", default="", help="what the journal says of it")
    text = "remove versions but the promoted one, the one before it, and the newest others"
    prune = add_command(commands, "prune", text, _prune, NAME, ENGINES_DIR)
    prune.add_argument("--keep", type=_count, default=1, metavar="N", help="how many others; 1")
    prune.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    add_load(commands)
    text = "show every change of an engine's versions"
    add_command(commands, "journal", text, _journal, NAME, ENGINES_DIR, JSON)


def _engines_dir(options: argparse.Namespace) -> Path:
    return settings_of(options, "engines_dir").engines_dir


def _promote(options: argparse.Namespace) -> int:
    wanted = f"{options.name}@{options.version}"
    card = promotion.promote(_engines_dir(options), wanted, options.reason)
    print(f"{card.label} is promoted: servers serve it from their next start on")
    return 0


def _rollback(options: argparse.Namespace) -> int:
    card = promotion.rollback(_engines_dir(options), options.name, options.reason)
    print(f"{card.label} is promoted again: servers serve it from their next start on")
    return 0


def _count(text: str) -> int:
    if (count := int(text)) < 0:
        raise ValueError
    return count


def _prune(options: argparse.Namespace) -> int:
    found = promotion.prune(
        _engines_dir(options),
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
    home = _engines_dir(options) / shelf.checked_name(options.name)
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
