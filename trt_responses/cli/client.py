"""A server spoken to over HTTP by the command line: JSON in and out, and streams of events; and one
that is started for a chat.

Standard library only, so that a terminal needs nothing installed besides the server itself.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from trt_responses.errors import UsageError

Json = dict[str, Any]

BASE_URL = "http://127.0.0.1:8000/v1"
URL_VARIABLE, KEY_VARIABLE = "OPENAI_BASE_URL", "OPENAI_API_KEY"
HOST = "127.0.0.1"
READY = " is ready"
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class ServerFault(Exception):
    """The server, or the network, gave an error instead of an answer."""


class NoAnswer(ServerFault):
    """The server did not answer, or its answer broke off."""


class Server:
    """One server, by its base URL."""

    def __init__(self, base_url: str, key: str | None, named: str = "--url") -> None:
        """`named` is the option that gave the URL."""
        try:
            is_usable = urlsplit(base_url).scheme in ("http", "https")
        except ValueError:  # such as a bracket that stays open
            is_usable = False
        if not is_usable:
            raise UsageError(f"{named} {base_url!r:.200}: expected a URL such as {BASE_URL}.")
        self.base_url = base_url.rstrip("/")
        self._headers = {"content-type": "application/json", "accept": "application/json"}
        if key:
            self._headers["authorization"] = bearer(key)

    def get(self, path: str) -> bytes:
        return _read(self._open("GET", path))

    def get_json(self, path: str) -> Json:
        return self._json(self.get(path))

    def post_json(self, path: str, sent: Json) -> Json:
        return self._json(_read(self._open("POST", path, json.dumps(sent).encode())))

    def models(self) -> list[Json]:
        listed = self.get_json("/models").get("data")
        if not isinstance(listed, list):
            raise self._no_api()
        return listed

    def _json(self, text: bytes | str) -> Json:
        """An object. A `ServerFault` where a page, or another service, answers at the URL."""
        with suppress(ValueError):
            if isinstance(body := json.loads(text), dict):
                return body
        raise self._no_api()

    def _no_api(self) -> ServerFault:
        return ServerFault(f"What answers at {self.base_url} is no such API: is the URL right?")

    def events(self, path: str, body: Json) -> Generator[Json, None, None]:
        """The events of a stream as they arrive. Closing the iterator closes the connection."""
        with self._open("POST", path, json.dumps(body | {"stream": True}).encode()) as reply:
            try:
                for line in reply:
                    data = line.removeprefix(b"data:").strip()
                    if data != line.strip() and data != b"[DONE]":
                        yield self._json(data)
            except (OSError, http.client.HTTPException) as error:
                raise ServerFault(f"The connection broke: {error}.") from None

    def _open(self, method: str, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(
            self.base_url + path, data=body, headers=self._headers, method=method
        )
        try:
            return urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            raise ServerFault(_message(error)) from None
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise NoAnswer(f"{self.base_url} does not answer: {why(reason)}.") from None


def _read(reply: Any) -> bytes:
    with reply:
        try:
            body: bytes = reply.read()
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"The connection broke: {error}.") from None
    return body


def bearer(key: str) -> str:
    """The header of a key. Raises a `UsageError` for one that no header can have, such as one with
    the end of a line of Windows."""
    if not (key.isascii() and key.isprintable()):
        raise UsageError("The key has a character that no header can have: see its line's end.")
    return f"Bearer {key}"


def why(reason: object) -> str:
    """The reason of an error of the network, in words."""
    return getattr(reason, "strerror", None) or str(reason)


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"]["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"The server answered {error.code} {error.reason}."


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a server. A key is never an option: other users can see the
    options of a process."""
    parser.add_argument(
        "--url",
        metavar="URL",
        help=f"Base URL of the server (default: {URL_VARIABLE}, or {BASE_URL}); the key is read "
        f"from {KEY_VARIABLE}",
    )


def server_of(options: argparse.Namespace) -> Server:
    """The server that the options name."""
    from_variable = os.environ.get(URL_VARIABLE)
    named = "--url" if options.url or not from_variable else URL_VARIABLE
    return Server(options.url or from_variable or BASE_URL, os.environ.get(KEY_VARIABLE), named)


@contextmanager
def own_server(model: str | None) -> Iterator[Server]:
    """Serve a model, or the default one, at a free port. What the server prints before it is ready
    goes to standard error."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "trt_responses", "serve", "--host", HOST, "--port", str(port)]
    process = subprocess.Popen(
        [*command, *([model] if model else [])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TRT_RESPONSES_LOG_LEVEL": "error"},
        start_new_session=True,  # a Ctrl-C in the chat stops an answer
    )
    try:
        _wait(process)
        yield Server(f"http://{HOST}:{port}/v1", os.environ.get(KEY_VARIABLE))
    finally:
        process.send_signal(signal.SIGINT)  # no time for a proxy to notice
        process.wait()


def _wait(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if READY in line:
            return
        print(line, end="", file=sys.stderr)
    raise ServerFault("The server did not start: its messages above say why.")


def printable(text: str) -> str:
    """The text without control characters: a model may write a terminal's escape sequences."""
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
