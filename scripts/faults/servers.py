"""A server to be hurt, clients that record replies, and a row of results."""

from __future__ import annotations

import http.client
import os
import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson

from trt_responses.features.limits.keys import new_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

LINGER_S, DRAIN_S = 1.0, 5.0
PATIENCE_S = 300.0
CLIENT_S = 3.0
"""So long a client waits for the next bytes behind a bad line."""
CLIENTS = 4
LOOK_S = 0.02
GONE = (ConnectionError, http.client.HTTPException, TimeoutError, OSError)
KEY = new_key()
SECRET_WORD = "zanzibar"
"""Stands in every prompt, and must stand in no log."""
NEVER = ("Traceback", "never retrieved", "was destroyed but it is pending", KEY, SECRET_WORD)
CANARIES = ("Say hello.", "Count from one to nine.")
Kind = Literal["embedded", "paced", "garbage", "frames", "steady"]


@dataclass
class Row:
    """What one kind of fault did."""

    name: str
    tried: int = 0
    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    """Whatever must not be: a response that is gone, an orphan, a refused connection."""
    seconds: list[float] = field(default_factory=list)
    """Until the server had gone, or was well again."""
    skipped: str | None = None

    def __str__(self) -> str:
        if self.skipped is not None:
            return f"{'-':>5} {'-':>12} {'-':>5} {'-':>10}  {self.name}: skipped, {self.skipped}"
        longest = f"{max(self.seconds):.1f}" if self.seconds else "-"
        return (
            f"{self.tried:5} {self.acknowledged:12} {len(self.lost):5} {longest:>10}  {self.name}"
        )

    def count(self, load: Load) -> None:
        """Add the load's acknowledged responses, and those of them that are lost."""
        self.acknowledged += len(load.acknowledged)
        self.lost += load.lost()


class Server:
    """`trt-responses serve` on a port and a history of its own; or the same over a scripted engine.

    `within` is a command that runs the server's; `environment` is added to its own."""

    def __init__(
        self,
        folder: Path,
        kind: Kind = "embedded",
        *,
        within: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        **settings: object,
    ) -> None:
        self.data = folder / "data"
        self._log = folder / "log"
        self.port = _free_port()
        self._program = "trt_responses" if kind == "embedded" else "scripts.faults.scripted"
        self._arguments = ("serve",) if kind == "embedded" else (kind,)
        self._within = within
        defaults = {"linger_s": LINGER_S, "drain_s": DRAIN_S, "log_level": "debug"}
        given = {
            **(defaults | {"api_keys": f"ann:{KEY}"} | settings),
            "data_dir": self.data,
            "port": self.port,
        }
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TRT_RESPONSES_")}
        self._environment = {
            **inherited,
            **{f"TRT_RESPONSES_{name.upper()}": str(value) for name, value in given.items()},
            **(environment or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._within, sys.executable, "-m", self._program, *self._arguments],
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    @contextmanager
    def running(self) -> Iterator[Server]:
        """Started and ready, and ended at the end."""
        try:
            self.start()
            self.ready()
            yield self
        finally:
            self.end()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def children(self) -> list[int]:
        found = []
        with suppress(OSError):
            for task in Path(f"/proc/{self.process.pid}/task").iterdir():
                found += [int(each) for each in (task / "children").read_text().split()]
        return found

    def ready(self) -> None:
        until(lambda: self.is_ready)

    @property
    def is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the server has ended: {self.log()[-2000:]}")
        try:
            return self.ask("GET", "/health/ready")[0] == 200
        except GONE:
            return False

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        port: int | None = None,
        wait_s: float = PATIENCE_S,
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=wait_s)
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
        try:
            data = None if body is None else orjson.dumps(body)
            connection.request(method, path, data, headers)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def json(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(self.ask(method, path, body)[1])
        return found

    def idle(self) -> None:
        """Waits until no response is being made."""
        until(lambda: self.json("GET", "/health")["queue"] == {"running": 0, "waiting": 0})

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def forbidden_lines(self) -> list[str]:
        """Lines of the log that must never appear."""
        lines = self.log().splitlines()
        return [f"in the log: {line[:200]}" for line in lines if any(bad in line for bad in NEVER)]


class Load:
    """Clients that ask one after another, streamed, plain and in the background, and record
    every reply; and a canary, whose fixed prompts have one answer each."""

    def __init__(
        self, server: Server, seed: int, *, port: int | None = None, canary: bool = True
    ) -> None:
        self._server = server
        self._port = port
        self._seed = seed
        self._canary = canary
        self._over = threading.Event()
        self.acknowledged: dict[str, dict[str, Any]] = {}
        """The last snapshot of each response whose end a client has received."""
        self.broken: list[str] = []
        """Ends of responses that blame the server, and not an engine that was lost half-way."""
        self.differ: list[str] = []
        """What the canary got that was not its answer."""

    @contextmanager
    def running(self) -> Iterator[Load]:
        answers = {prompt: self._server_answer(prompt) for prompt in CANARIES if self._canary}
        threads = [threading.Thread(target=self._client, args=(n,)) for n in range(CLIENTS)]
        if answers:
            threads.append(threading.Thread(target=self._sing, args=(answers,)))
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _server_answer(self, prompt: str) -> str:
        """What it answers; an engine that is disturbed from its start may need several tries."""
        while True:
            status, body = self._server.ask("POST", "/v1/responses", _canary(prompt))
            if status == 200:
                return _text(orjson.loads(body))
            time.sleep(LOOK_S)

    def _sing(self, answers: Mapping[str, str]) -> None:
        while not self._over.is_set():
            for prompt, expected in answers.items():
                try:
                    status, body = self._server.ask("POST", "/v1/responses", _canary(prompt))
                except GONE:
                    time.sleep(LOOK_S)
                    continue
                if status == 200 and (got := _text(orjson.loads(body))) != expected:
                    self.differ.append(f"{prompt!r} was answered {got!r}, not {expected!r}")

    def _client(self, number: int) -> None:
        chance = random.Random(f"{self._seed}/{number}")
        while not self._over.is_set():
            fields = {
                "model": "demo",
                "input": f"{SECRET_WORD}: {chance.randrange(100)} plus {chance.randrange(100)}?",
                "max_output_tokens": chance.randrange(16, 200),
                chance.choice(("stream", "background", "store")): True,
            }
            try:
                status, body = self._server.ask(
                    "POST", "/v1/responses", fields, port=self._port, wait_s=self._wait_s
                )
                cut = b"event: error" in body and b'"code":"engine_lost"' not in body
                if status == 500 or cut:
                    self.broken.append(f"a response failed: {body[-300:].decode()}")
                last = _last(body, stream="stream" in fields) if status == 200 else None
                if last is not None and "background" in fields:
                    last = self._awaited(last["id"])
            except (*GONE, orjson.JSONDecodeError):
                last = None
            if last is not None:
                self.acknowledged[last["id"]] = last
            else:
                time.sleep(LOOK_S)

    @property
    def _wait_s(self) -> float:
        return PATIENCE_S if self._port is None else CLIENT_S

    def _awaited(self, name: str) -> dict[str, Any] | None:
        """A background response once it has ended; None while the server is away."""
        while True:
            status, body = self._server.ask("GET", f"/v1/responses/{name}")
            found: dict[str, Any] = orjson.loads(body)
            if status != 200:
                return None
            if found["status"] not in ("queued", "in_progress"):
                return found
            time.sleep(LOOK_S)

    def lost(self) -> list[str]:
        """Acknowledged responses that cannot be read back unchanged, and wrong answers."""
        gone = [name for name, last in self.acknowledged.items() if not self._is_kept(name, last)]
        return [*gone, *self.differ]

    def _is_kept(self, name: str, last: dict[str, Any]) -> bool:
        status, body = self._server.ask("GET", f"/v1/responses/{name}")
        kept = orjson.loads(body)
        return status == 200 and all(kept[part] == last[part] for part in ("status", "output"))


def _canary(prompt: str) -> dict[str, object]:
    return {
        "model": "demo",
        "input": f"{SECRET_WORD}: {prompt}",
        "temperature": 0,
        "max_output_tokens": 32,
        "store": False,
    }


def _text(response: dict[str, Any]) -> str:
    return "".join(
        part["text"] for item in response["output"] for part in item.get("content") or ()
    )


def _last(body: bytes, *, stream: bool) -> dict[str, Any] | None:
    """The snapshot at the end of a reply; None when it was cut."""
    if not stream:
        whole: dict[str, Any] = orjson.loads(body)
        return whole
    events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")]
    last: dict[str, Any] = orjson.loads(events[-1]) if events else {}
    ended = last.get("type") in ("response.completed", "response.incomplete")
    return last["response"] if ended else None


def until(claim: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not claim():
        if time.monotonic() > deadline_s:
            raise TimeoutError("what was waited for has not come")
        time.sleep(LOOK_S)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def resident_mib(pid: int) -> float:
    """Memory that a process holds; none when it has gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
