"""`trt-responses engine load | unload`: exchanges the engine version of a running server."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from trt_responses.backends.keys import admin_key
from trt_responses.cli.commands import NAME, RUNNING_SERVER, add_command, settings_of
from trt_responses.cli.drain import reply_of
from trt_responses.errors import UsageError
from trt_responses.settings import PREFIX

if TYPE_CHECKING:
    from trt_responses.cli.commands import Commands


def add_load(commands: Commands) -> None:
    """Add the commands `engine load` and `engine unload`."""
    text = "load a version into a running server, compare it with the served one, and serve it"
    example = "engine load demo 2 --canary 0.1"
    load = add_command(commands, "load", text, _load, NAME, RUNNING_SERVER, example=example)
    load.add_argument(
        "version",
        metavar="N",
        nargs="?",
        help="Number or digest of the version (default: the promoted one if it is not served yet, "
        "else the newest)",
    )
    load.add_argument("--exact", action="store_true", help="Refusal unless all tokens are equal")
    load.add_argument(
        "--no-gate", action="store_true", help="No comparison, such as for a rollback"
    )
    text = "Refusal if memory cannot hold both versions, instead of a pause of running responses"
    load.add_argument("--no-pause", action="store_true", help=text)
    text = "Share of the conversations for the new version, such as 0.1, without a promotion"
    load.add_argument("--canary", type=share, metavar="SHARE", help=text)
    load.add_argument("--reason", default="", metavar="TEXT", help="Note for the journal")
    text, example = "end the canary of a running server", "engine unload demo"
    add_command(commands, "unload", text, _unload, NAME, RUNNING_SERVER, example=example)


def share(text: str) -> float:
    """Parses a share, for `type=`."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1:  # which "nan" is not, either
        raise argparse.ArgumentTypeError(f"{text!r}: expected a share between 0 and 1, such as 0.1")
    return number


def _load(options: argparse.Namespace) -> int:
    body = {
        "version": options.version,
        "gate": not options.no_gate,
        "exact": options.exact,
        "canary": options.canary,
        "pause": not options.no_pause,
        "reason": options.reason,
    }
    return _exchange(options, "load", body)


def _unload(options: argparse.Namespace) -> int:
    return _exchange(options, "unload", {})


def _exchange(options: argparse.Namespace, act: str, body: dict[str, Any]) -> int:
    """Send the request and print the reply as JSON. Returns status 0 on success, 1 when the server
    refuses."""
    settings = settings_of(options, "host", "port")
    if admin_key(settings) is None:
        raise UsageError(f"engine {act} needs an admin key: set {PREFIX}ADMIN_KEY.")
    path = f"/admin/engines/{quote(options.name, safe='')}/{act}"
    status, reply = reply_of(settings, "POST", path, orjson.dumps(body))  # loading can be slow
    try:
        print(orjson.dumps(orjson.loads(reply), option=orjson.OPT_INDENT_2).decode())
    except orjson.JSONDecodeError:
        print(reply.decode("utf-8", "replace"))
    return 0 if status == 200 else 1
