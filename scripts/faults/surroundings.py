"""What fails around a server: a full disk, a date that jumps, a bad line, idle sockets."""

from __future__ import annotations

import http.client
import os
import resource
import shutil
import socket
import subprocess
import threading
import time
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from scripts.faults.proxy import BadProxy
from scripts.faults.servers import LOOK_S, SECRET_WORD, Load, Row, Server, until
from trt_responses.features.limits.key_file import changing
from trt_responses.features.limits.keys import Key, digest_of, new_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scripts.faults.servers import Kind

MOUNT = 'mkdir -p "$0" && mount -t tmpfs -o size=1m none "$0" && exec "$@"'
FILE_BYTES = 1 << 20
JUMPS_S = (-600, 86_400, -86_400, 600, 3 * 86_400, 0)
PRELOADED = "libfaketime.so.1"
REFUSED_WITHIN_S = 30.0
"""A removed key is refused within two seconds; a busy machine gets more."""


def small_disk(data: Path) -> tuple[str, Sequence[str]]:
    """What it is called, and the command that runs a server with such a data directory."""
    mounting = ("unshare", "-rm", "sh", "-c", MOUNT, str(data))
    if shutil.which("unshare") and not subprocess.run([*mounting, "true"], check=False).returncode:
        return "a file system of 1 MiB", mounting
    return "files of 1 MiB at most (no file system could be mounted)", (
        *("prlimit", f"--fsize={FILE_BYTES}"),
    )


def fill_the_disk(folder: Path, kind: Kind, seconds: float) -> Row:
    """Store and audit log on a full disk: acknowledged responses stay, a delete makes room, and a
    removed key is refused although the audit log cannot record it."""
    keys, other = folder / "keys.json", new_key()
    _hold(keys, other)
    disk, within = small_disk(folder / "data")
    row = Row(f"{disk} under history and audit: seconds until a delete has made room")
    server = Server(folder, kind, within=within, keys_file=keys)
    acknowledged: dict[str, dict[str, object]] = {}
    with server.running():
        full, ends_s = 0, time.monotonic() + seconds
        while full < 5 and time.monotonic() < ends_s:
            row.tried += 1
            fields = {"model": "demo", "input": f"{SECRET_WORD} {os.urandom(6000).hex()}"}
            status, body = server.ask("POST", "/v1/responses", fields | {"max_output_tokens": 16})
            if status == 200:
                last = orjson.loads(body)
                acknowledged[last["id"]] = last
            else:
                full += 1
        row.acknowledged = len(acknowledged)
        if not full:
            row.lost.append(f"the disk was not full after {row.tried} responses")
        plain = {"model": "demo", "input": "Hello", "store": False, "max_output_tokens": 16}
        if server.ask("POST", "/v1/responses", plain)[0] != 200:
            row.lost.append("on a full disk `store: false` was refused")
        row.lost += [name for name, last in acknowledged.items() if not _reads(server, name, last)]
        row.lost += _removed_key(server, keys, other)
        begun_s = time.monotonic()
        for name in tuple(acknowledged)[: len(acknowledged) // 2 + 1]:
            if server.ask("DELETE", f"/v1/responses/{name}")[0] != 200:
                row.lost.append(f"{name} could not be deleted on a full disk")
        until(lambda: server.ask("POST", "/v1/responses", plain | {"store": True})[0] == 200)
        row.seconds.append(time.monotonic() - begun_s)
    row.lost += server.forbidden_lines()
    return row


def _hold(path: Path, *keys: str) -> None:
    with changing(path) as write:
        write([Key(owner="bob", name=f"n{n}", sha256=digest_of(k)) for n, k in enumerate(keys)])


def _reads(server: Server, name: str, last: dict[str, object]) -> bool:
    status, body = server.ask("GET", f"/v1/responses/{name}")
    return status == 200 and orjson.loads(body)["output"] == last["output"]


def _removed_key(server: Server, keys: Path, key: str) -> list[str]:
    def status() -> int:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", "/v1/models", headers={"authorization": f"Bearer {key}"})
        found = connection.getresponse().status
        connection.close()
        return found

    if status() != 200:
        return ["a key of the file was refused"]
    _hold(keys)
    ends_s = time.monotonic() + REFUSED_WITHIN_S
    while status() != 401:
        if time.monotonic() > ends_s:
            return ["a removed key was still let in"]
        time.sleep(LOOK_S)
    return []


def jump_in_time(folder: Path, kind: Kind, seconds: float) -> Row:
    """The machine's date jumps by minutes and days under load; what counts seconds does not."""
    row = Row("the date jumps by minutes and days under load: seconds until nothing runs any more")
    library = next(Path("/usr/lib").glob(f"**/{PRELOADED}"), None)
    if library is None:
        row.skipped = f"{PRELOADED} is not installed (apt-get install faketime)"
        return row
    stamp = folder / "stamp"
    _set_clock(stamp, 0)
    faked = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(stamp),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_CACHE_DURATION": "1",
        "TRT_RESPONSES_DATE": "2026-01-02",  # of the prompts, whose answers are compared
    }
    server = Server(folder, kind, environment=faked)
    with server.running():
        load = Load(server, 1)
        with load.running():
            for jump_s in JUMPS_S:
                time.sleep(seconds / len(JUMPS_S))
                _set_clock(stamp, jump_s)
                row.tried += 1
            time.sleep(seconds / len(JUMPS_S))
            begun_s = time.monotonic()
        server.idle()
        row.seconds.append(time.monotonic() - begun_s)
        row.count(load)
        failed = [name for name, last in load.acknowledged.items() if last["status"] == "failed"]
        row.lost += [f"{name} failed" for name in failed]
    row.lost += server.forbidden_lines()
    return row


def _set_clock(stamp: Path, jump_s: int) -> None:
    """Whole or not at all: it is read at any moment."""
    fresh = stamp.with_suffix(".new")
    fresh.write_text(f"{jump_s:+d}\n")
    fresh.replace(stamp)


def talk_over_a_bad_line(folder: Path, kind: Kind, seconds: float) -> Row:
    """Clients behind a proxy that slows, splits, cuts and forgets their connections."""
    row = Row("clients over a line that slows, splits, cuts and forgets: seconds until none runs")
    server = Server(folder, kind)
    with server.running(), BadProxy(server.port, seed=1).running() as line:
        load = Load(server, 1, port=line.port)
        with load.running():
            time.sleep(seconds)
            until(lambda: all(line.treated.values()) and bool(load.acknowledged))
        begun_s = time.monotonic()
        server.idle()
        row.seconds.append(time.monotonic() - begun_s)
        row.tried = sum(line.treated.values())
        row.count(load)
    row.lost += server.forbidden_lines()
    return row


def hold_idle_sockets(folder: Path, kind: Kind, count: int, seconds: float) -> Row:
    """Idle connections, some within a request, beside clients; then all of them are closed."""
    row = Row(f"{count} idle sockets beside clients: seconds until the server has closed its ends")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = Server(folder, kind)
    with server.running():
        before = _descriptors(server)
        parts = cycle((b"", b"GET /health HTTP/1.1\r\n", b"POST /v1/responses HTTP/1.1\r\nhost: a"))
        held = []
        for _ in range(count):
            held.append(socket.create_connection(("127.0.0.1", server.port), 30))
            held[-1].sendall(next(parts))
        until(lambda: _descriptors(server) >= before + count)
        row.tried = len(held)
        load = Load(server, 1)
        with load.running():
            time.sleep(seconds)
            until(lambda: bool(load.acknowledged))
        row.count(load)
        begun_s = time.monotonic()
        closing = [threading.Thread(target=_close, args=(held[n::4],)) for n in range(4)]
        for each in closing:
            each.start()
        until(lambda: _descriptors(server) < before + 20)
        row.seconds.append(time.monotonic() - begun_s)
        for each in closing:
            each.join()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    row.lost += server.forbidden_lines()
    return row


def _close(held: Sequence[socket.socket]) -> None:
    for each in held:
        with suppress(OSError):
            each.close()


def _descriptors(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))
