"""Stop, kill and stall real servers at random moments; print what was lost and how long it took.

Each server is a process with the demo engine and a history on disk, under clients that note what
they were told. Afterwards every response that was acknowledged is read back from the next server on
the same history and compared. Moments come from a seed, so that a run can be repeated.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from trt_responses.cli.engine import prepare_demo
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LINGER_S, DRAIN_S = 1.0, 5.0
PATIENCE_S = 120.0
CLIENTS = 4
CONNECT_EVERY_S = 0.01
START_S = 6.0
"""Signals hit a start somewhere within it."""
LOOK_S = 0.02
GONE = (ConnectionError, http.client.HTTPException, TimeoutError, OSError)


@dataclass
class Row:
    """What one kind of fault did."""

    name: str
    tried: int = 0
    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    """Whatever must not be: a response that is gone, an orphan, a refused connection."""
    seconds: list[float] = field(default_factory=list)
    """Until the server had gone, or was ready again."""

    def __str__(self) -> str:
        longest = f"{max(self.seconds):.1f}" if self.seconds else "-"
        return (
            f"{self.tried:5} {self.acknowledged:12} {len(self.lost):5} {longest:>10}  {self.name}"
        )


class Server:
    """`python -m trt_responses serve` on a port and a history of its own."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self._folder = folder
        self.port = _free_port()
        self._settings = {"linger_s": LINGER_S, "drain_s": DRAIN_S, **settings}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TRT_RESPONSES_")}
        given = {f"TRT_RESPONSES_{k.upper()}": str(v) for k, v in self._settings.items()}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trt_responses", "serve", "--port", str(self.port)],
                env=inherited | given | {"TRT_RESPONSES_DATA_DIR": str(self._folder / "data")},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

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
        _until(lambda: self.is_ready)

    @property
    def is_ready(self) -> bool:
        try:
            return self.ask("GET", "/health/ready")[0] == 200
        except GONE:
            return False

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            data = None if body is None else orjson.dumps(body)
            connection.request(method, path, data, {"content-type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        return (self._folder / "log").read_text("utf-8", "replace")


class Load:
    """Clients that ask one after another, streamed and plain, and note what they were told."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._seed = seed
        self._over = threading.Event()
        self.told: dict[str, dict[str, Any]] = {}
        """The last snapshot of each response whose end a client has heard."""

    @contextmanager
    def running(self) -> Iterator[Load]:
        threads = [threading.Thread(target=self._client, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _client(self, number: int) -> None:
        chance = random.Random(f"{self._seed}/{number}")
        while not self._over.is_set():
            stream = chance.random() < 0.5
            asked = {
                "model": "demo",
                "input": f"What is {chance.randrange(100)} plus {chance.randrange(100)}?",
                "stream": stream,
                "max_output_tokens": chance.randrange(16, 200),
            }
            try:
                status, body = self._server.ask("POST", "/v1/responses", asked)
            except GONE:
                time.sleep(LOOK_S)
                continue
            if status == 200 and (last := _last(body, stream=stream)) is not None:
                self.told[last["id"]] = last
            elif status != 200:
                time.sleep(LOOK_S)

    def lost(self) -> list[str]:
        """Responses that were told and cannot be read back as they were."""
        return [name for name, last in self.told.items() if not self._is_kept(name, last)]

    def _is_kept(self, name: str, last: dict[str, Any]) -> bool:
        status, body = self._server.ask("GET", f"/v1/responses/{name}")
        kept = orjson.loads(body)
        return status == 200 and all(kept[part] == last[part] for part in ("status", "output"))


def stop_a_start(folder: Path, number: signal.Signals, times: int, chance: random.Random) -> Row:
    """A signal while it starts: it goes, its engine goes, and the next start finds nothing odd."""
    row = Row(f"{number.name} while it starts: seconds until server and engine have gone")
    for _ in range(times):
        server = Server(folder)
        server.start()
        time.sleep(chance.uniform(0, START_S))
        children = server.children()
        begun_s = time.monotonic()
        server.process.send_signal(number)
        server.process.wait(PATIENCE_S)
        _until(lambda: not any(map(_alive, children)))  # noqa: B023  # awaited at once
        row.tried += 1
        row.seconds.append(time.monotonic() - begun_s)
    server = Server(folder)
    server.start()
    server.ready()
    server.end()
    row.lost += [str(path) for path in folder.rglob("*.tmp*")]
    return row


def stop_under_load(folder: Path, number: signal.Signals, times: int, chance: random.Random) -> Row:
    """A signal under load, then the next server on the same history."""
    row = Row(f"{number.name} under load: seconds until the next server is ready")
    server = Server(folder)
    server.start()
    server.ready()
    for _ in range(times):
        load = Load(server, chance.randrange(1 << 30))
        with load.running():
            time.sleep(chance.uniform(1, 3))
            begun_s = time.monotonic()
            server.process.send_signal(number)
            server.process.wait(PATIENCE_S)
            server.start()
            server.ready()
        row.tried += 1
        row.seconds.append(time.monotonic() - begun_s)
        row.acknowledged += len(load.told)
        row.lost += load.lost()
    server.end()
    return row


def connect_through_a_drain(folder: Path) -> Row:
    """A connection every 10 ms while a stream goes on and the server drains."""
    row = Row("connections each 10 ms through a drain: none refused before the last stream's end")
    server = Server(folder, drain_s=60)
    server.start()
    server.ready()
    ended_s: list[float] = []

    def stream() -> None:
        asked = {"model": "demo", "input": "Count.", "stream": True, "max_output_tokens": 400}
        server.ask("POST", "/v1/responses", asked)
        ended_s.append(time.monotonic())

    streams = [threading.Thread(target=stream) for _ in range(CLIENTS)]
    for each in streams:
        each.start()
    time.sleep(0.3)
    begun_s = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    refused_s = None
    while server.process.poll() is None and refused_s is None:
        try:
            socket.create_connection(("127.0.0.1", server.port), 5).close()
            row.tried += 1
        except ConnectionRefusedError:
            refused_s = time.monotonic()
        time.sleep(CONNECT_EVERY_S)
    for each in streams:
        each.join()
    if refused_s is not None and refused_s < max(ended_s):
        row.lost.append("refused before the last stream's end")
    row.acknowledged = len(ended_s)
    server.process.wait(PATIENCE_S)
    row.seconds.append(time.monotonic() - begun_s)
    return row


def break_the_engine(folder: Path, number: signal.Signals, times: int) -> Row:
    """The engine's process dies or stands still under load; the server mends it."""
    what = "dies" if number is signal.SIGKILL else "stands still"
    row = Row(f"the engine {what} under load: seconds until another answers")
    server = Server(folder, stall_s=1)
    server.start()
    server.ready()
    for seed in range(times):
        load = Load(server, seed)
        with load.running():
            time.sleep(1)
            begun_s = time.monotonic()
            children = server.children()
            for child in children:
                os.kill(child, number)
            _until(lambda: server.children() != children and server.is_ready)  # noqa: B023
            row.seconds.append(time.monotonic() - begun_s)
        row.tried += 1
        row.acknowledged += len(load.told)
        row.lost += load.lost()
    server.end()
    if "Traceback" in server.log():
        row.lost.append("a traceback in the log")
    return row


def _last(body: bytes, *, stream: bool) -> dict[str, Any] | None:
    """The snapshot at the end of a reply; None when it was cut."""
    if not stream:
        whole: dict[str, Any] = orjson.loads(body)
        return whole
    events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")]
    last: dict[str, Any] = orjson.loads(events[-1]) if events else {}
    ended = last.get("type") in ("response.completed", "response.incomplete")
    return last["response"] if ended else None


def _until(claim: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not claim():
        if time.monotonic() > deadline_s:
            raise TimeoutError("what was waited for has not come")
        time.sleep(LOOK_S)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="how often each fault is made")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments")
    chosen = parser.parse_args()
    times, chance = chosen.times, random.Random(chosen.seed)
    prepare_demo(Settings.from_environment())
    acts: list[Callable[[Path], Row]] = [
        lambda folder: stop_a_start(folder, signal.SIGTERM, times, chance),
        lambda folder: stop_a_start(folder, signal.SIGKILL, times, chance),
        lambda folder: stop_under_load(folder, signal.SIGTERM, times, chance),
        lambda folder: stop_under_load(folder, signal.SIGKILL, times, chance),
        connect_through_a_drain,
        lambda folder: break_the_engine(folder, signal.SIGKILL, times),
        lambda folder: break_the_engine(folder, signal.SIGSTOP, times),
    ]
    print("tried acknowledged  lost  longest s  what", flush=True)
    failed = False
    for act in acts:
        with tempfile.TemporaryDirectory() as folder:
            row = act(Path(folder))
        print(row, *(f"\n      LOST {each}" for each in row.lost[:10]), sep="", flush=True)
        failed = failed or bool(row.lost)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
