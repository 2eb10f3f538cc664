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
    """A server's versions over HTTP."""

    def __init__(
        self, url: str, name: str, key: str, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._server = Server(self.url, key, "--servers")
        self._path = f"/admin/engines/{quote(name, safe='')}"
        self._sleep = sleep

    def state(self, looks: int = LOOKS) -> Json:
        for _ in range(looks - 1):
            with suppress(NoAnswer):
                return self._server.get_json(self._path)
            self._sleep(LOOK_S)
        return self._server.get_json(self._path)

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

    def unload(self) -> None:
        self._server.post_json(f"{self._path}/unload", {})


def is_of(shown: Json, version: str) -> bool:
    """Whether a server shows this version. Its name there may be another: that of clients."""
    return version in (shown["digest"], shown["version"].rpartition("@")[2])


@dataclass
class Stop:
    """One server on the way, and what became of it."""

    server: RemoteVersions
    before: Json
    """The state of the server at the beginning."""
    now: str
    result: str = "unchanged"
    stuck: bool = False
    """Whether it could not go back."""


class Rollout:
    """The way of one version over all servers."""

    def __init__(
        self,
        servers: Sequence[RemoteVersions],
        label: str,
        *,
        canary: float | None = None,
        watch_s: int = 0,
        tell: Callable[[str], None] = to_stderr,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`label` is the version, as NAME@N."""
        self.stops: list[Stop] = []
        self._servers = servers
        self._label = label
        self._version = label.partition("@")[2]
        self._canary = canary
        self._watch_s = watch_s
        self._tell, self._sleep = tell, sleep

    def look(self) -> None:
        """See what each server serves. Raises a `ServerFault` for one that cannot be moved."""
        for server in self._servers:
            state = server.state(looks=1)
            if state["loading"] is not None:
                raise ServerFault(f"{server.url} is busy: {state['loading']}.")
            prepared = state["prepared"]
            numbers = [label.rpartition("@")[2] for label in prepared]
            if self._version not in numbers and len(self._version) < DIGEST:
                raise ServerFault(f"{server.url} has no {self._label}, only {', '.join(prepared)}.")
            self.stops.append(Stop(server, state, now=state["promoted"]["version"]))

    def go(self) -> str | None:
        """Move all servers. Returns the fault that stopped it, when all are back."""
        for place, stop in enumerate(self.stops):
            try:
                self._move(stop)
            except ServerFault as fault:
                stop.result = str(fault)
                for moved in reversed(self.stops[: place + 1]):
                    self._bring_back(moved)
                return f"{stop.server.url}: {fault}"
        return None

    def _move(self, stop: Stop) -> None:
        server = stop.server
        if self._canary is not None and not is_of(stop.before["promoted"], self._version):
            self._tell(f"{server.url}: loading {self._label} as a canary")
            server.load(self._version, canary=self._canary, reason=REASON)
            self._watch(server)
        self._tell(f"{server.url}: loading {self._label}")
        outcome = server.load(self._version, reason=REASON)
        stop.now, stop.result = outcome["version"], outcome["state"]

    def _watch(self, server: RemoteVersions) -> None:
        for _ in range(self._watch_s):
            self._sleep(LOOK_S)
            canary = server.state()["canary"]
            if canary is None or not canary["ready"]:
                raise ServerFault(f"{self._label} has failed as a canary.")

    def _bring_back(self, stop: Stop) -> None:
        """Bring a server back to what it served before."""
        server, before = stop.server, stop.before
        try:
            state = server.state()
            if state["canary"] is not None and before["canary"] is None:
                server.unload()
            if state["promoted"]["digest"] != before["promoted"]["digest"]:
                self._tell(f"{server.url}: going back to {before['promoted']['version']}")
                version = before["promoted"]["digest"]
                server.load(version, gate=False, reason=f"{REASON}: going back")
                stop.result = "went back"
            stop.now = before["promoted"]["version"]
        except ServerFault as fault:
            stop.stuck, stop.now = True, "unknown"
            stop.result = f"{stop.result}; could not go back: {fault}"


def _rollout(options: argparse.Namespace) -> int:
    """Status 0 when all servers serve the version, 1 when they went back or nothing was begun."""
    key, label = _key(options), f"{options.name}@{options.version}"
    urls = [url for given in options.servers for url in given.split(",") if url]
    rollout = Rollout(
        [RemoteVersions(url, options.name, key) for url in urls],
        label,
        canary=options.canary,
        watch_s=options.watch,
    )
    try:
        rollout.look()
    except ServerFault as fault:
        print(f"Nothing was changed: {fault}")
        return 1
    why = None if options.dry_run else rollout.go()
    _show(rollout.stops)
    print(_sentence(rollout.stops, label, why, dry=options.dry_run))
    return 0 if why is None else 1


def _key(options: argparse.Namespace) -> str:
    if options.key is None:
        key = settings_of(options).admin_key
    else:
        try:
            key = options.key.read_text("utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise UsageError(f"--key {options.key}: cannot be read ({error}).") from None
    if not key:
        raise UsageError(f"rollout needs an admin key: pass --key FILE, or set {PREFIX}ADMIN_KEY.")
    return key


def _show(stops: Sequence[Stop]) -> None:
    table = Table("server", "before", "now", "result", box=None)
    table.padding = (0, 1, 0, 0)
    for column in table.columns:
        column.overflow = "fold"
    for stop in stops:
        before = stop.before["promoted"]["version"]
        table.add_row(stop.server.url, before, stop.now, stop.result)
    Console().print(table)


def _sentence(stops: Sequence[Stop], label: str, fault: str | None, *, dry: bool) -> str:
    if dry:
        return f"Nothing was changed: {len(stops)} servers would go to {label}."
    if fault is None:
        return f"All {len(stops)} servers serve {label}."
    if stuck := [stop.server.url for stop in stops if stop.stuck]:
        return f"Stopped, and NOT all servers are back: look at {', '.join(stuck)}. {fault}"
    return f"Stopped and went back: every server serves its earlier version. {fault}"
