"""`trt-responses engine adapter add | list | remove`. Parses, calls, prints."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from trt_responses.cli.commands import ENGINES_DIR, JSON, add_command, option, settings_of
from trt_responses.prepare.llamacpp.lora import import_adapter as import_llamacpp
from trt_responses.prepare.progress import megabytes
from trt_responses.prepare.shelf import adapter_changes, shelf
from trt_responses.prepare.shelf.adapters import adapters_of
from trt_responses.prepare.shelf.card import read_card
from trt_responses.prepare.trtllm.lora import import_adapter as import_trtllm

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from trt_responses.cli.commands import Commands
    from trt_responses.prepare.shelf.adapter_changes import Import
    from trt_responses.prepare.shelf.card import Kind

KINDS: Mapping[Kind, Import] = {"llamacpp": import_llamacpp, "trtllm": import_trtllm}
"""The kinds of engine that take adapters."""
ENGINE = option("engine", metavar="ENGINE", help="NAME, or NAME@N for one version")


def add_adapters(commands: Commands) -> None:
    """Add the command `adapter` and its subcommands."""
    text = "add, list and remove LoRA adapters, which are served as models of their own"
    parser = commands.add_parser("adapter", help=text, description=text[0].upper() + text[1:] + ".")
    own = parser.add_subparsers(required=True, metavar="COMMAND")
    text = "check an adapter and add it to an engine, to be served as ENGINE:NAME"
    add = add_command(own, "add", text, _add, ENGINE, ENGINES_DIR)
    add.add_argument("adapter", metavar="NAME", help="name of the adapter")
    add.add_argument(
        "source",
        type=Path,
        metavar="DIR|FILE",
        help="a directory as PEFT saves it; of the embedded engine also a GGUF file",
    )
    text = "list the adapters of an engine"
    add_command(own, "list", text, _list, ENGINE, ENGINES_DIR, JSON)
    remove = add_command(
        own, "remove", "remove an adapter of an engine", _remove, ENGINE, ENGINES_DIR
    )
    remove.add_argument("adapter", metavar="NAME", help="name of the adapter")


def _engines_dir(options: argparse.Namespace) -> Path:
    return settings_of(options, "engines_dir").engines_dir


def _add(options: argparse.Namespace) -> int:
    change = adapter_changes.add(
        _engines_dir(options), options.engine, options.adapter, options.source, KINDS
    )
    adapter, name = change.adapter, change.card.name
    print(
        f"added {change.label}, of rank {adapter.rank} for {', '.join(adapter.modules)}: servers "
        f"serve it as {name}:{adapter.name} from their next start on"
    )
    return 0


def _list(options: argparse.Namespace) -> int:
    directory = shelf.find(_engines_dir(options), options.engine)
    adapters = adapters_of(directory)
    if options.json:
        print(json.dumps([asdict(adapter) for adapter in adapters], indent=2))
        return 0
    table = Table("adapter", "rank", "changes", "size", "digest", "source", "added")
    for each in adapters:
        size = megabytes(sum(file.size_bytes for file in each.files))
        modules, digest = ", ".join(each.modules), each.sha256[:12]
        table.add_row(each.name, str(each.rank), modules, size, digest, each.source, each.added_at)
    none = f"{read_card(directory).label} has no adapters."
    Console().print(table if adapters else none)
    return 0


def _remove(options: argparse.Namespace) -> int:
    change = adapter_changes.remove(_engines_dir(options), options.engine, options.adapter)
    print(f"removed {change.label}")
    return 0
