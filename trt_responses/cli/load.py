"""`trt-responses engine load | unload`: asks a running server to exchange its engine's version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from trt_responses.cli.commands import NAME, RUNNING_SERVER, add_command, settings_of
from trt_responses.cli.drain import reply_of
from trt_responses.errors import StartupError
from trt_responses.settings import PREFIX

if TYPE_CHECKING:
    import argparse

    from trt_responses.cli.commands import Commands


def add_load(commands: Commands) -> None:
    """Add the commands `engine load` and `engine unload`."""
    text = "have a running server load a version, compare it with its own, and serve it"
    load = add_command(commands, "load", text, _load, NAME, *RUNNING_SERVER)
    load.add_argument(
        "version",
        metavar="N",
        nargs="?",
        help="its number or its digest; without: the promoted version if it is not the one that "
        "is served, else the newest",
    )
    load.add_argument("--exact", action="store_true", help="ask for the very same tokens")
    load.add_argument("--no-gate", action="store_true", help="compare nothing: for a rollback")
    text = "refuse it where memory does not hold both, instead of pausing what is running"
    load.add_argument("--no-pause", action="store_true", help=text)
    text = "give it this share of the conversations, as 0.1, and promote nothing"
    load.add_argument("--canary", type=_share, metavar="SHARE", help=text)
    load.add_argument("--reason", default="", help="what the journal says of it")
    text = "have a running server end its canary"
    add_command(commands, "unload", text, _unload, NAME, *RUNNING_SERVER)


def _share(text: str) -> float:
    if not 0 < (share := float(text)) < 1:  # which "nan" is not, either
        raise ValueError
    return share


def _load(options: argparse.Namespace) -> int:
    asked = {
        "version": options.version,
        "gate": not options.no_gate,
        "exact": options.exact,
        "canary": options.canary,
        "pause": not options.no_pause,
        "reason": options.reason,
    }
    return _asked(options, "load", asked)


def _unload(options: argparse.Namespace) -> int:
    return _asked(options, "unload", {})


def _asked(options: argparse.Namespace, act: str, body: dict[str, Any]) -> int:
    """Ask a server to exchange its engine and print its reply as JSON. Returns status 0 when it was
    done, 1 when the server refuses."""
    settings = settings_of(options, "host", "port")
    if settings.admin_key is None:
        raise StartupError(f"A {act} asks for an admin's key: set {PREFIX}ADMIN_KEY.")
    path = f"/admin/engines/{quote(options.name, safe='')}/{act}"
    status, said = reply_of(settings, "POST", path, orjson.dumps(body))  # loading may take long
    try:
        print(orjson.dumps(orjson.loads(said), option=orjson.OPT_INDENT_2).decode())
    except orjson.JSONDecodeError:
        print(said.decode("utf-8", "replace"))
    return 0 if status == 200 else 1
