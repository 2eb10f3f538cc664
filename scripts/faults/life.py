"""Servers that are stopped and killed at any moment; engines that die, stall and say nonsense."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from scripts.faults.servers import (
    CLIENTS,
    PATIENCE_S,
    Load,
    Row,
    Server,
    alive,
    until,
)
from tests.support.redis_server import running as running_redis

if TYPE_CHECKING:
    import random

    from scripts.faults.servers import Kind

Whose = Literal["child", "engine's process", "front end"]
CONNECT_EVERY_S = 0.01
START_S = 6.0
"""Signals hit a start somewhere within it."""


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
        until(lambda: not any(map(alive, children)))  # noqa: B023  # awaited at once
        row.tried += 1
        row.seconds.append(time.monotonic() - begun_s)
    server = Server(folder)
    with server.running():
        row.lost += server.forbidden_lines()
    row.lost += [str(path) for path in folder.rglob("*.tmp*")]
    return row


def stop_under_load(
    folder: Path, number: signal.Signals, times: int, chance: random.Random, kind: Kind = "embedded"
) -> Row:
    """A signal under load, then the next server on the same history."""
    row = Row(f"{number.name} under load: seconds until the next server is ready")
    server = Server(folder, kind)
    with server.running():
        for _ in range(times):
            load = Load(server, chance.randrange(1 << 30))
            with load.running():
                time.sleep(chance.uniform(0.5, 2))
                begun_s = time.monotonic()
                server.process.send_signal(number)
                server.process.wait(PATIENCE_S)
                server.start()
                server.ready()
                row.seconds.append(time.monotonic() - begun_s)
            row.tried += 1
            row.count(load)
    row.lost += server.forbidden_lines()
    return row


def connect_through_a_drain(folder: Path, kind: Kind = "embedded") -> Row:
    """A connection every 10 ms while streams go on and the server drains."""
    row = Row("connections each 10 ms through a drain: none refused before the last stream's end")
    server = Server(folder, kind, drain_s=60)
    ended_s: list[float] = []

    def stream() -> None:
        body = {"model": "demo", "input": "Count.", "stream": True, "max_output_tokens": 400}
        server.ask("POST", "/v1/responses", body)
        ended_s.append(time.monotonic())

    with server.running():
        streams = [threading.Thread(target=stream) for _ in range(CLIENTS)]
        for each in streams:
            each.start()
        time.sleep(0.1)
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
    row.lost += server.forbidden_lines()
    return row


def break_the_engine(
    folder: Path, number: signal.Signals, times: int, whose: Whose = "child"
) -> Row:
    """A process dies or stands still under load: the embedded engine's child, an engine's own
    process, or one of two front ends. The server mends it, and no response fails for it."""
    what = "dies" if number is signal.SIGKILL else "stands still"
    row = Row(f"the {whose} {what} under load: seconds until another answers")
    server = Server(
        folder,
        stall_s=1,
        engine_process="always" if whose == "engine's process" else "auto",
        frontends=2 if whose == "front end" else 1,
    )
    with server.running():
        for seed in range(times):
            load = Load(server, seed)
            with load.running():
                time.sleep(1)
                begun_s = time.monotonic()
                children = server.children()
                hurt = [pid for pid in children if whose != "front end" or is_front_end(pid)][:1]
                for child in hurt:
                    os.kill(child, number)
                until(lambda: hurt[0] not in server.children() and server.is_ready)  # noqa: B023
                until(lambda: len(server.children()) == len(children))  # noqa: B023
                row.seconds.append(time.monotonic() - begun_s)
            row.tried += 1
            row.count(load)
            row.lost += load.broken
    row.lost += server.forbidden_lines()
    return row


def is_front_end(pid: int) -> bool:
    return b"front_end" in Path(f"/proc/{pid}/cmdline").read_bytes()


def freeze_redis(folder: Path, times: int, seconds: float) -> Row:
    """Redis hangs under load for a while: acknowledged responses stay, `store: false` works."""
    row = Row("Redis stands still under load: seconds until a response is stored again")
    if shutil.which("redis-server") is None:
        row.skipped = "redis-server is not installed (apt-get install redis-server)"
        return row
    with running_redis(folder) as redis:
        server = Server(folder, store=redis.url)
        plain = {"model": "demo", "input": "Hello", "max_output_tokens": 16}
        with server.running():
            for seed in range(times):
                load = Load(server, seed)
                with load.running():
                    time.sleep(1)
                    with redis.paused():
                        time.sleep(seconds)
                        if server.ask("POST", "/v1/responses", plain | {"store": False})[0] != 200:
                            row.lost.append("without Redis `store: false` was refused")
                    begun_s = time.monotonic()
                    until(lambda: server.ask("POST", "/v1/responses", plain)[0] == 200)
                    row.seconds.append(time.monotonic() - begun_s)
                row.tried += 1
                row.count(load)
        row.lost += server.forbidden_lines()
    return row


def say_nonsense(folder: Path, kind: Kind, seconds: float) -> Row:
    """An engine whose ids mean nothing, or whose messages are broken, under load."""
    what = "answers ids that mean nothing" if kind == "garbage" else "sends broken messages"
    row = Row(f"the engine {what} under load: seconds until nothing runs any more")
    server = Server(folder, kind)
    with server.running():
        load = Load(server, 1, canary=kind == "frames")
        with load.running():
            time.sleep(seconds)
            until(lambda: bool(load.acknowledged))
            begun_s = time.monotonic()
        server.idle()
        row.seconds.append(time.monotonic() - begun_s)
        row.tried = len(load.acknowledged)
        row.count(load)
    row.lost += server.forbidden_lines()
    return row
