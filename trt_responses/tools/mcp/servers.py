"""MCP servers in the operator's file, and the URLs of servers that a request may name.

Values and checks of URLs: no connections and no SDK.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from trt_responses.errors import StartupError
from trt_responses.frozen import dataclass

LABEL = re.compile(r"^[A-Za-z0-9_-]{1,64}$")
KEYS = {"url", "headers", "command", "args", "env", "cwd", "shared", "tools", "timeout_s", "type"}
LONGEST_S = 86_400
"""The longest timeout of a call: a day."""
PORTS = {"http": 80, "https": 443}
UNCLEAR = re.compile(r"[\x00-\x20\x7f\\]|%2e|%2f|%5c", re.IGNORECASE)
"""Parts of a URL that URL parsers interpret differently."""


class Remote(NamedTuple):
    """A server over streamable HTTP."""

    url: str
    headers: Mapping[str, str]
    """They may contain secrets, and are sent to the server only."""

    def __repr__(self) -> str:
        return "Remote(…)"


class Local(NamedTuple):
    """A server as a child process, over its pipes."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    shared: bool
    """Whether all responses share one process."""
    label: str = ""
    """Its name in the log."""

    def __repr__(self) -> str:
        return f"Local({self.command!r}, …)"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that the operator configured."""

    label: str
    at: Remote | Local
    tools: frozenset[str] | None = None
    """The allowed tools; None: all."""
    timeout_s: float | None = None
    """The timeout of a call; None: that of every server."""

    @property
    def program(self) -> str | None:
        """The program to start; None for an HTTP server."""
        return self.at.command if isinstance(self.at, Local) else None

    @property
    def address(self) -> tuple[str, int] | None:
        """The server's host and port; None for a process."""
        if isinstance(self.at, Local):
            return None
        place = place_of(self.at.url)
        return place.host, place.port


class Place(NamedTuple):
    """The parts of a URL that determine where a request goes."""

    scheme: str
    host: str
    port: int
    path: str

    def holds(self, other: Place) -> bool:
        """Whether the other is at or below this one."""
        same = self[:3] == other[:3]
        return same and (other.path + "/").startswith(self.path.rstrip("/") + "/")


def place_of(url: str) -> Place:
    """The place of a URL. Raises a readable `ValueError` unless it is a plain http or https URL."""
    if UNCLEAR.search(url) or not url.isascii():
        raise ValueError("the URL has ambiguous characters: use plain ASCII")
    parts = urlsplit(url)
    port = PORTS.get(parts.scheme)
    if port is None:
        raise ValueError("the URL should begin with https:// or http://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL has a user name or a password: use 'authorization'")
    host = (parts.hostname or "").rstrip(".")
    if not host:
        raise ValueError("the URL names no host")
    if parts.port == 0:
        raise ValueError("the URL has the port 0")
    if any(step in (".", "..") for step in parts.path.split("/")):
        raise ValueError("the URL has steps such as '..'")
    return Place(parts.scheme, host, parts.port or port, parts.path or "/")


def servers_in(path: Path, setting: str) -> dict[str, Server]:
    """The servers in a file: an object by label, or the same under `mcpServers`. Raises a
    `StartupError` that names the fault, and never a value."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as fault:
        raise StartupError(f"{setting}: {path} cannot be read: {fault.strerror}.") from None
    except ValueError:
        raise StartupError(f"{setting}: {path} is not JSON.") from None
    if isinstance(content, dict) and isinstance(content.get("mcpServers"), dict):
        content = content["mcpServers"]
    if not isinstance(content, dict):
        raise StartupError(f"{setting}: {path} must be an object of servers by label.")
    servers = {}
    for label, entry in content.items():
        try:
            servers[label] = _server(label, entry)
        except ValueError as fault:
            raise StartupError(f"{setting}: server '{label:.64}' in {path}: {fault}.") from None
    return servers


def _server(label: str, entry: Any) -> Server:
    if not LABEL.match(label):
        raise ValueError("a label must have 1 to 64 letters, digits, '_' and '-'")
    if not isinstance(entry, dict):
        raise ValueError("expected an object")
    if unknown := sorted(entry.keys() - KEYS):
        raise ValueError(f"unknown key '{unknown[0]:.64}'; the keys are {', '.join(sorted(KEYS))}")
    tools = entry.get("tools")
    if ("url" in entry) == ("command" in entry):
        raise ValueError("expected either 'url' or 'command'")
    allowed = None if tools is None else frozenset(_texts(tools, "tools"))
    timeout_s = _seconds(entry.get("timeout_s"), "timeout_s")
    if "url" in entry:
        url = _text(entry["url"], "url")
        place_of(url)
        remote = Remote(url, _pairs(entry.get("headers", {}), "headers"))
        return Server(label, remote, allowed, timeout_s)
    at = Local(
        _text(entry["command"], "command"),
        tuple(_texts(entry.get("args", []), "args")),
        _pairs(entry.get("env", {}), "env"),
        None if entry.get("cwd") is None else _text(entry["cwd"], "cwd"),
        entry.get("shared", False) is True,
        label,
    )
    return Server(label, at, allowed, timeout_s)


def _text(value: object, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"'{key}' must be a string")
    return value


def _seconds(value: object, key: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and value is not True and 0 < value <= LONGEST_S:
        return float(value)
    raise ValueError(f"'{key}' must be a number of seconds, more than 0, at most {LONGEST_S}")


def _texts(value: object, key: str) -> Sequence[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"'{key}' must be a list of strings")
    return value


def _pairs(value: object, key: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise ValueError(f"'{key}' must be an object of strings")
    return value
