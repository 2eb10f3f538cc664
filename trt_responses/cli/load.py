"""`trt-responses engine load | unload`: asks a running server to exchange its engine's version."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from trt_responses.cli.drain import EVERYWHERE
from trt_responses.errors import StartupError
from trt_responses.settings import PREFIX, Settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_load(commands: Commands) -> None:
    """Add the commands `engine load` and `engine unload`."""
    text = "have a running server load a version, compare it with its own, and serve it"
    load = _command(commands, "load", text, _load)
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
    _command(commands, "unload", "have a running server end its canary", _unload)


def _command(
    commands: Commands, name: str, text: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("name", metavar="NAME", help="name of the engine")
    parser.add_argument("--host", metavar="HOST", help="Address of the running server.")
    parser.add_argument("--port", metavar="PORT", help="Its port.")
    parser.set_defaults(run=run)
    return parser


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
    settings = Settings.from_environment(host=options.host, port=options.port)
    if settings.admin_key is None:
        raise StartupError(f"A {act} asks for an admin's key: set {PREFIX}ADMIN_KEY.")
    host = EVERYWHERE.get(settings.host, settings.host)
    connection = http.client.HTTPConnection(host, settings.port)  # loading may take long
    try:
        headers = {
            "authorization": f"Bearer {settings.admin_key}",
            "content-type": "application/json",
        }
        path = f"/admin/engines/{quote(options.name, safe='')}/{act}"
        connection.request("POST", path, orjson.dumps(body), headers)
        reply = connection.getresponse()
        status, said = reply.status, reply.read()
    except (OSError, http.client.HTTPException) as error:
        raise StartupError(
            f"No server answers at {settings.host}:{settings.port}: {error}."
        ) from None
    finally:
        connection.close()
    try:
        print(orjson.dumps(orjson.loads(said), option=orjson.OPT_INDENT_2).decode())
    except orjson.JSONDecodeError:
        print(said.decode("utf-8", "replace"))
    return 0 if status == 200 else 1
