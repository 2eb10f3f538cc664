"""`trt-responses engine adapter add | list | remove`. Parses, calls, prints."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from trt_responses.cli.commands import (
    ENGINES_DIR,
    JSON,
    VERSION_OF,
    add_command,
    add_group,
    engines_dir_of,
    option,
)
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
"""The kinds of engine that serve adapters."""
ENGINE = option("engine", metavar="ENGINE", help=VERSION_OF)


def add_adapters(commands: Commands) -> None:
    """Add the command `adapter` and its subcommands."""
    text = "add, list and remove LoRA adapters, each served as a model of its own"
    own = add_group(commands, "adapter", text, example="engine adapter list demo")
    text = "add an adapter to an engine, served as ENGINE:NAME"
    example = "engine adapter add gpt-oss-20b support ./adapter"
    add = add_command(own, "add", text, _add, ENGINE, ENGINES_DIR, example=example)
    add.add_argument("adapter", metavar="NAME", help="Name of the adapter")
    add.add_argument(
        "source",
        type=Path,
        metavar="DIR|FILE",
        help="Directory saved by PEFT; for the embedded engine also a GGUF file",
    )
    text, example = "list the adapters of an engine", "engine adapter list demo --json"
    add_command(own, "list", text, _list, ENGINE, ENGINES_DIR, JSON, example=example)
    text, example = "remove an adapter of an engine", "engine adapter remove demo support"
    remove = add_command(own, "remove", text, _remove, ENGINE, ENGINES_DIR, example=example)
    remove.add_argument("adapter", metavar="NAME", help="Name of the adapter")


def _add(options: argparse.Namespace) -> int:
    change = adapter_changes.add(
        engines_dir_of(options), options.engine, options.adapter, options.source, KINDS
    )
    adapter, name = change.adapter, change.card.name
    print(
        f"added {change.label}, rank {adapter.rank}, modules {', '.join(adapter.modules)}; servers "
        f"serve it as {name}:{adapter.name} after a restart"
    )
    return 0


def _list(options: argparse.Namespace) -> int:
    directory = shelf.find(engines_dir_of(options), options.engine)
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
    change = adapter_changes.remove(engines_dir_of(options), options.engine, options.adapter)
    print(f"removed {change.label}")
    return 0
