"""`trt-responses drain`: asks a running server to stop, as a SIGTERM does."""

from __future__ import annotations

import http.client
import time
from typing import TYPE_CHECKING

import orjson

from trt_responses.errors import StartupError
from trt_responses.settings import PREFIX, Settings

if TYPE_CHECKING:
    import argparse

LOOK_S = 0.2
ANSWER_S = 10.0
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def add_drain(parser: argparse.ArgumentParser) -> None:
    """Add the command `drain` and its options."""
    parser.add_argument("--host", metavar="HOST", help="Address of the running server.")
    parser.add_argument("--port", metavar="PORT", help="Its port.")
    parser.add_argument("--wait", action="store_true", help="return when it has stopped")
    parser.set_defaults(run=_drain)


def _drain(options: argparse.Namespace) -> int:
    settings = Settings.from_environment(host=options.host, port=options.port)
    if settings.admin_key is None:
        raise StartupError(
            f"A drain asks for an admin's key: set {PREFIX}ADMIN_KEY, or send the server a SIGTERM."
        )
    place = f"{settings.host}:{settings.port}"
    try:
        status, body = _asked(settings, "POST", "/admin/drain", settings.admin_key)
    except (OSError, http.client.HTTPException) as error:
        raise StartupError(f"No server answers at {place}: {error}.") from None
    if status != 200:
        raise StartupError(f"The server at {place} refuses ({status}): {_message(body)}")
    print(f"{place} is draining")
    while options.wait and _is_draining(settings):
        time.sleep(LOOK_S)
    return 0


def _is_draining(settings: Settings) -> bool:
    """Whether the server still answers that it drains. False when it has gone or its successor
    answers."""
    try:
        _, body = _asked(settings, "GET", "/health")
        return bool(orjson.loads(body)["state"] == "draining")
    except (OSError, http.client.HTTPException):
        return False


def _asked(settings: Settings, method: str, path: str, key: str | None = None) -> tuple[int, bytes]:
    host = EVERYWHERE.get(settings.host, settings.host)
    connection = http.client.HTTPConnection(host, settings.port, timeout=ANSWER_S)
    try:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def _message(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"]["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")
