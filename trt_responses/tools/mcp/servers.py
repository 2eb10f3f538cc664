"""MCP servers: those of the operator's file, and those that a request may name.

Values and the judgement of URLs; knows no connection and no SDK.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from trt_responses.errors import StartupError
from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

LABEL = re.compile(r"^[A-Za-z0-9_-]{1,64}$")
KEYS = {"url", "headers", "command", "args", "env", "cwd", "shared", "tools", "type"}
PORTS = {"http": 80, "https": 443}
UNCLEAR = re.compile(r"[\x00-\x20\x7f\\]|%2e|%2f|%5c", re.IGNORECASE)
"""In a URL: what readers of URLs do not all read alike."""


class Remote(NamedTuple):
    """A server over streamable HTTP."""

    url: str
    headers: Mapping[str, str]
    """Secrets may stand in them: they go to the server and nowhere else."""

    def __repr__(self) -> str:
        return "Remote(…)"


class Local(NamedTuple):
    """A server that is a child process and speaks over its pipes."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    shared: bool
    """One process for all responses; else each has its own."""
    label: str = ""
    """Its name in the log."""

    def __repr__(self) -> str:
        return f"Local({self.command!r}, …)"


@dataclass(frozen=True, slots=True)
class Server:
    """A server as the operator has configured it."""

    label: str
    at: Remote | Local
    tools: frozenset[str] | None = None
    """The tools that may be offered; None: all."""

    @property
    def program(self) -> str | None:
        """What is begun for it; None for one over HTTP."""
        return self.at.command if isinstance(self.at, Local) else None

    @property
    def address(self) -> tuple[str, int] | None:
        """The server's host and port; None for a process."""
        if isinstance(self.at, Local):
            return None
        place = place_of(self.at.url)
        return place.host, place.port


class Place(NamedTuple):
    """A URL, as far as it says where a request goes."""

    scheme: str
    host: str
    port: int
    path: str

    def holds(self, other: Place) -> bool:
        """Whether the other stands at or below this one."""
        same = self[:3] == other[:3]
        return same and (other.path + "/").startswith(self.path.rstrip("/") + "/")


def place_of(url: str) -> Place:
    """Raises a `ValueError` in words for what is no plain http or https URL."""
    if UNCLEAR.search(url) or not url.isascii():
        raise ValueError("the URL has characters that not everybody reads alike")
    parts = urlsplit(url)
    port = PORTS.get(parts.scheme)
    if port is None:
        raise ValueError("the URL should begin with https:// or http://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL with a user name or a password is not asked: use 'authorization'")
    host = (parts.hostname or "").rstrip(".")
    if not host:
        raise ValueError("the URL names no host")
    if parts.port == 0:
        raise ValueError("the URL has the port 0")
    if any(step in (".", "..") for step in parts.path.split("/")):
        raise ValueError("the URL has steps such as '..'")
    return Place(parts.scheme, host, parts.port or port, parts.path or "/")


def servers_in(path: Path, setting: str) -> dict[str, Server]:
    """The servers of a file: an object of them by label, also below `mcpServers`, as other
    programs have it. Raises a `StartupError` that names the fault, and never a value."""
    try:
        told = json.loads(path.read_text("utf-8"))
    except OSError as fault:
        raise StartupError(f"{setting}: {path} cannot be read: {fault.strerror}.") from None
    except ValueError:
        raise StartupError(f"{setting}: {path} does not hold JSON.") from None
    if isinstance(told, dict) and isinstance(told.get("mcpServers"), dict):
        told = told["mcpServers"]
    if not isinstance(told, dict):
        raise StartupError(f"{setting}: {path} should hold an object of servers by their labels.")
    servers = {}
    for label, entry in told.items():
        try:
            servers[label] = _server(label, entry)
        except ValueError as fault:
            raise StartupError(f"{setting}: server '{label:.64}' in {path}: {fault}.") from None
    return servers


def _server(label: str, entry: Any) -> Server:
    if not LABEL.match(label):
        raise ValueError("a label has up to 64 letters, digits, '_' and '-'")
    if not isinstance(entry, dict):
        raise ValueError("expected an object")
    if unknown := sorted(entry.keys() - KEYS):
        raise ValueError(f"unknown key '{unknown[0]:.64}'; the keys are {', '.join(sorted(KEYS))}")
    tools = entry.get("tools")
    if ("url" in entry) == ("command" in entry):
        raise ValueError("expected 'url' or 'command', and one of them")
    allowed = None if tools is None else frozenset(_texts(tools, "tools"))
    if "url" in entry:
        url = _text(entry["url"], "url")
        place_of(url)
        return Server(label, Remote(url, _pairs(entry.get("headers", {}), "headers")), allowed)
    at = Local(
        _text(entry["command"], "command"),
        tuple(_texts(entry.get("args", []), "args")),
        _pairs(entry.get("env", {}), "env"),
        None if entry.get("cwd") is None else _text(entry["cwd"], "cwd"),
        entry.get("shared", False) is True,
        label,
    )
    return Server(label, at, allowed)


def _text(value: object, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"'{key}' should be a text")
    return value


def _texts(value: object, key: str) -> Sequence[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"'{key}' should be a list of texts")
    return value


def _pairs(value: object, key: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise ValueError(f"'{key}' should be an object of texts")
    return value
