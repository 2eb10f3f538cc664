"""`trt-responses engine promote | rollback | prune | journal`. Parses, calls, prints."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from trt_responses.cli.commands import (
    ENGINES_DIR,
    JSON,
    NAME,
    add_command,
    engines_dir_of,
    number_from,
    option,
)
from trt_responses.cli.engines.load import add_load
from trt_responses.errors import UsageError
from trt_responses.prepare.progress import megabytes
from trt_responses.prepare.shelf import promotion, shelf, versions

if TYPE_CHECKING:
    import argparse

    from trt_responses.cli.commands import Commands


def add_versions(commands: Commands) -> None:
    """Add the commands that change which version of an engine is served."""
    here = (NAME, ENGINES_DIR)
    reason = option("--reason", default="", metavar="TEXT", help="Note for the journal")
    text, example = "choose the version that servers serve after a restart", "engine promote demo 2"
    promote = add_command(commands, "promote", text, _promote, *here, reason, example=example)
    promote.add_argument("version", metavar="N", help="Number or digest of the version")
    text, example = "promote the version that was promoted before", "engine rollback demo"
    add_command(commands, "rollback", text, _rollback, *here, reason, example=example)
    text = "remove old versions, except the promoted one and the one promoted before it"
    example = "engine prune demo --keep 2 --dry-run"
    prune = add_command(commands, "prune", text, _prune, *here, example=example)
    prune.add_argument(
        "--keep",
        type=number_from(0),
        default=1,
        metavar="N",
        help="Number of other versions to keep, the newest ones (default: 1)",
    )
    prune.add_argument("--dry-run", action="store_true", help="List of versions, without removal")
    add_load(commands)
    text, example = "show every change of an engine's versions", "engine journal demo"
    add_command(commands, "journal", text, _journal, *here, JSON, example=example)


def _promote(options: argparse.Namespace) -> int:
    wanted = f"{options.name}@{options.version}"
    card = promotion.promote(engines_dir_of(options), wanted, options.reason)
    print(f"{card.label} is promoted; servers serve it after a restart")
    return 0


def _rollback(options: argparse.Namespace) -> int:
    card = promotion.rollback(engines_dir_of(options), options.name, options.reason)
    print(f"{card.label} is promoted again; servers serve it after a restart")
    return 0


def _prune(options: argparse.Namespace) -> int:
    found = promotion.prune(
        engines_dir_of(options),
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
    engines_dir = engines_dir_of(options)
    home = engines_dir / shelf.checked_name(options.name)
    found = versions.journal(home)
    if not found and not home.is_dir():
        raise UsageError(f"No engine named {options.name} in {engines_dir}.")
    if options.json:
        print(json.dumps([asdict(change) for change in found], indent=2))
        return 0
    table = Table("at", "change", "version", "digest", "reason")
    for change in found:
        number = "" if change.number is None else f"{options.name}@{change.number}"
        table.add_row(change.at[:19], change.act, number, change.version, change.reason)
    Console().print(table if found else f"No changes of {options.name} yet.")
    return 0
