"""`trt-responses migrate`: takes the store back to a format that an earlier server reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from trt_responses.backends.dialects import spelled
from trt_responses.backends.stores import store_of
from trt_responses.cli.commands import add_command, number_from, settings_of
from trt_responses.errors import ApiError, StartupError, UsageError
from trt_responses.serve.server import lasting

if TYPE_CHECKING:
    import argparse

    from trt_responses.cli.commands import Commands


def add(commands: Commands, name: str, text: str) -> None:
    """Add the command `migrate`."""
    parser = add_command(commands, name, text, _run, example="migrate --to 1")
    about = "Format, as the server that refuses the store names it"
    parser.add_argument("--to", metavar="N", type=number_from(1), required=True, help=about)


def _run(options: argparse.Namespace) -> int:
    store: Any = store_of(lasting(settings_of(options)), spelled())
    if not hasattr(store, "migrate"):
        raise UsageError("This kind of store has one format.")
    try:
        asyncio.run(store.migrate(options.to))
    except ApiError as error:
        raise StartupError(f"{error.message} Run the command again.") from None
    print(f"The store has format {options.to}.")
    return 0
