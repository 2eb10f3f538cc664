"""`trt-responses drain`: stops a running server as a SIGTERM does."""

from __future__ import annotations

import http.client
import time
from contextlib import closing
from typing import TYPE_CHECKING

import orjson

from trt_responses.backends.keys import admin_key
from trt_responses.cli.client import bearer, why
from trt_responses.cli.commands import RUNNING_SERVER, add_command, settings_of
from trt_responses.errors import StartupError, UsageError
from trt_responses.settings import PREFIX

if TYPE_CHECKING:
    import argparse

    from trt_responses.cli.commands import Commands
    from trt_responses.settings import Settings

LOOK_S = 0.2
ANSWER_S = 10.0
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def add(commands: Commands, name: str, text: str) -> None:
    """Add the command `drain` and its options."""
    parser = add_command(
        commands, name, text, _drain, RUNNING_SERVER, example="drain --port 8080 --wait"
    )
    parser.add_argument("--wait", action="store_true", help="Return after the server has stopped")


def _drain(options: argparse.Namespace) -> int:
    settings = settings_of(options, "host", "port")
    if admin_key(settings) is None:
        raise UsageError(
            f"drain needs an admin key: set {PREFIX}ADMIN_KEY, or send the server a SIGTERM."
        )
    place = f"{settings.host}:{settings.port}"
    status, body = reply_of(settings, "POST", "/admin/drain", timeout_s=ANSWER_S)
    if status != 200:
        raise StartupError(f"The server at {place} refused to drain ({status}): {_message(body)}")
    print(f"{place} is draining")
    while options.wait and _is_draining(settings):
        time.sleep(LOOK_S)
    return 0


def _is_draining(settings: Settings) -> bool:
    """Whether the server still drains. False when it has stopped, or when its successor answers."""
    try:
        _, body = reply_of(settings, "GET", "/health", timeout_s=ANSWER_S)
        return bool(orjson.loads(body)["state"] == "draining")
    except (StartupError, orjson.JSONDecodeError, KeyError, TypeError):
        return False


def reply_of(
    settings: Settings,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    timeout_s: float | None = None,
) -> tuple[int, bytes]:
    """The status and the body of a running server's reply to its admin. Raises a `StartupError` if
    no server answers."""
    host = EVERYWHERE.get(settings.host, settings.host)
    key = bearer(admin_key(settings) or "")
    headers = {"authorization": key, "content-type": "application/json"}
    try:
        with closing(http.client.HTTPConnection(host, settings.port, timeout=timeout_s)) as server:
            server.request(method, path, body, headers)
            reply = server.getresponse()
            return reply.status, reply.read()
    except (OSError, UnicodeError, http.client.HTTPException) as error:
        place = f"{settings.host}:{settings.port}"
        raise StartupError(f"No server answers at {place}: {why(error)}.") from None


def _message(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"]["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")
