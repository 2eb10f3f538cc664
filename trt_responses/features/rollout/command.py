"""`trt-responses rollout`: moves servers to a version one by one, and back if one refuses it."""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rich.console import Console
from rich.table import Table

from trt_responses.backends.keys import admin_key
from trt_responses.cli.building import to_stderr
from trt_responses.cli.client import NoAnswer, Server, ServerFault
from trt_responses.cli.commands import NAME, add_command, number_from, settings_of
from trt_responses.cli.engines.load import share
from trt_responses.errors import UsageError
from trt_responses.settings import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trt_responses.cli.commands import Commands

    Json = dict[str, Any]

REASON = "rollout"
DIGEST = 12
"""The length of a digest; a number is shorter."""
LOOK_S = 1.0
LOOKS = 10
"""At a server that does not answer, before it counts as lost."""


def add(commands: Commands, name: str, text: str) -> None:
    """Add the command `rollout` and its options."""
    example = "rollout gpt 2 --servers http://a:8000,http://b:8000 --canary 0.05"
    parser = add_command(commands, name, text, _rollout, NAME, example=example)
    parser.add_argument("version", metavar="N", help="Number or digest of the version")
    parser.add_argument(
        *("--servers", "--server"),
        action="append",
        required=True,
        metavar="URL,URL",
        help="Servers in their order; repeatable",
    )
    parser.add_argument(
        "--canary",
        type=share,
        metavar="SHARE",
        help="Share of the conversations for the new version before its promotion (default: none)",
    )
    parser.add_argument(
        "--watch",
        type=number_from(0),
        default=60,
        metavar="SECONDS",
        help="Time of the canary on each server (default: 60)",
    )
    parser.add_argument(
        "--key",
        type=Path,
        metavar="FILE",
        help=f"File with the admin key (default: the key in {PREFIX}ADMIN_KEY)",
    )
    parser.add_argument("--dry-run", action="store_true", help="Plan, without any change")


class RemoteVersions:
    """A server's versions over HTTP, and what became of them."""

    def __init__(
        self, url: str, name: str, key: str, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._server = Server(self.url, key, "--servers")
        self._path = f"/admin/engines/{quote(name, safe='')}"
        self._sleep = sleep
        self.before: Json = {}
        """The server's state at the beginning."""
        self.now, self.result = "", "unchanged"
        self.stuck = False
        """Whether it could not go back."""

    def state(self, looks: int = LOOKS) -> Json:
        for _ in range(looks - 1):
            with suppress(NoAnswer):
                return self._server.get_json(self._path)
            self._sleep(LOOK_S)
        return self._server.get_json(self._path)

    def look(self, label: str) -> None:
        """Note what it serves. Raises a `ServerFault` if it cannot be moved to this version."""
        self.before = state = self.state(looks=1)
        self.now = state["promoted"]["version"]
        if state["loading"] is not None:
            raise ServerFault(f"{self.url} is busy: {state['loading']}.")
        version, prepared = label.partition("@")[2], state["prepared"]
        numbers = [one.rpartition("@")[2] for one in prepared]
        if version not in numbers and len(version) < DIGEST:
            raise ServerFault(f"{self.url} has no {label}, only {', '.join(prepared)}.")

    def load(self, version: str, **body: object) -> Json:
        """What a load came to, also when the connection breaks meanwhile: it continues there."""
        try:
            return self._server.post_json(f"{self._path}/load", {"version": version} | body)
        except NoAnswer:
            while (state := self.state())["loading"] is not None:
                self._sleep(LOOK_S)
        last: Json = state["last_load"] or {}
        goal = ("canary",) if "canary" in body else ("promoted", "unchanged")
        if last.get("state") not in goal or not is_of(last, version):
            raise ServerFault(last.get("reason") or "The server has not loaded it.")
        return last

    def go_back(self, tell: Callable[[str], None]) -> None:
        """Bring it back to what it served at the beginning."""
        before = self.before["promoted"]
        try:
            state = self.state()
            if state["canary"] is not None and self.before["canary"] is None:
                self._server.post_json(f"{self._path}/unload", {})
            if state["promoted"]["digest"] != before["digest"]:
                tell(f"{self.url}: going back to {before['version']}")
                self.load(before["digest"], gate=False, reason=f"{REASON}: going back")
                self.result = "went back"
            self.now = before["version"]
        except ServerFault as fault:
            self.stuck, self.now = True, "unknown"
            self.result = f"{self.result}; could not go back: {fault}"


def is_of(shown: Json, version: str) -> bool:
    """Whether a server shows this version. Its name there may be another: that of clients."""
    return version in (shown["digest"], shown["version"].rpartition("@")[2])


@dataclass
class Rollout:
    """The way of one version over all servers."""

    servers: Sequence[RemoteVersions]
    label: str
    """The version, as NAME@N."""
    canary: float | None = None
    watch_s: int = 0
    tell: Callable[[str], None] = to_stderr
    sleep: Callable[[float], None] = time.sleep

    def look(self) -> None:
        for server in self.servers:
            server.look(self.label)

    def go(self) -> str | None:
        """Move all servers. Returns the fault that stopped it, when all are back."""
        for place, server in enumerate(self.servers, 1):
            try:
                self._move(server)
            except ServerFault as fault:
                server.result = str(fault)
                for moved in reversed(self.servers[:place]):
                    moved.go_back(self.tell)
                return f"{server.url}: {fault}"
        return None

    def _move(self, server: RemoteVersions) -> None:
        version = self.label.partition("@")[2]
        if self.canary is not None and not is_of(server.before["promoted"], version):
            self.tell(f"{server.url}: loading {self.label} as a canary")
            server.load(version, canary=self.canary, reason=REASON)
            self._watch(server)
        self.tell(f"{server.url}: loading {self.label}")
        outcome = server.load(version, reason=REASON)
        server.now, server.result = outcome["version"], outcome["state"]

    def _watch(self, server: RemoteVersions) -> None:
        for _ in range(self.watch_s):
            self.sleep(LOOK_S)
            canary = server.state()["canary"]
            if canary is None or not canary["ready"]:
                raise ServerFault(f"{self.label} has failed as a canary.")


def _rollout(options: argparse.Namespace) -> int:
    """Status 0 when all servers serve the version, 1 when they went back or nothing was begun."""
    key, label = _key(options), f"{options.name}@{options.version}"
    urls = [url for given in options.servers for url in given.split(",") if url]
    servers = [RemoteVersions(url, options.name, key) for url in urls]
    rollout = Rollout(servers, label, options.canary, options.watch)
    try:
        rollout.look()
    except ServerFault as fault:
        print(f"Nothing was changed: {fault}")
        return 1
    why = None if options.dry_run else rollout.go()
    table = Table("server", "before", "now", "result", box=None, padding=(0, 1, 0, 0))
    for server in servers:
        before = server.before["promoted"]["version"]
        table.add_row(server.url, before, server.now, server.result)
    for column in table.columns:
        column.overflow = "fold"
    Console().print(table)
    print(_sentence(rollout, why, dry=options.dry_run))
    return 0 if why is None else 1


def _sentence(rollout: Rollout, fault: str | None, *, dry: bool) -> str:
    count, label = len(rollout.servers), rollout.label
    if dry:
        return f"Nothing was changed: {count} servers would go to {label}."
    if fault is None:
        return f"All {count} servers serve {label}."
    if stuck := [server.url for server in rollout.servers if server.stuck]:
        return f"Stopped, and NOT all servers are back: look at {', '.join(stuck)}. {fault}"
    return f"Stopped and went back: every server serves its earlier version. {fault}"


def _key(options: argparse.Namespace) -> str:
    try:
        key = (
            options.key.read_text("utf-8").strip()
            if options.key
            else admin_key(settings_of(options))
        )
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--key {options.key}: cannot be read ({error}).") from None
    if not key:
        raise UsageError(f"rollout needs an admin key: pass --key FILE, or set {PREFIX}ADMIN_KEY.")
    return str(key)
