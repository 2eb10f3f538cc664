"""The server over TCP, in a process of its own: what an event costs with sockets and HTTP.

The client is a third process. Only the server's CPU time counts, of all its threads. `hop` is the
same server with the engine in a process of its own: what the server costs alone, and both together.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.asks import BODY
from bench.check import Wrong, seen
from bench.inprocess import alike
from bench.script import script
from bench.server import CONTENDERS
from bench.timing import Repeats, cpu_ns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bench.check import Seen
    from bench.script import Script
    from trt_responses.tokens.vocabulary import Vocabulary

TOKENS_A_REPEAT = 60_000
"""About a quarter of a second of the floor."""

CLIENT_S = 120
"""When a client has not ended by then, something hangs."""


@dataclass(frozen=True, slots=True)
class Row:
    """So many streams at once, each as fast as it can."""

    streams: int
    chunk: int
    floor: Repeats
    ours: Repeats
    hop: Repeats
    hop_both: Repeats


@dataclass(frozen=True, slots=True)
class Up:
    """A server that is up, and what one of its streams looks like."""

    pid: int
    port: int
    stream: Seen


def rows(
    vocabulary: Vocabulary, length: int, chunk: int, streams: Iterable[int], repeats: int
) -> list[Row]:
    words = script(vocabulary, length)
    with ExitStack() as stack:
        servers = {name: stack.enter_context(up(name, words, length, chunk)) for name in CONTENDERS}
        for name in ("ours", "hop"):
            alike(servers["floor"].stream, servers[name].stream)
        return [_row(servers, len(words), chunk, count, repeats) for count in streams]


def _row(servers: dict[str, Up], tokens: int, chunk: int, streams: int, repeats: int) -> Row:
    rounds = max(1, TOKENS_A_REPEAT // (tokens * streams))
    times: dict[str, list[float]] = {name: [] for name in (*servers, "hop_both")}
    for repeat in range(-1, repeats):  # the first one warms up
        for name, server in servers.items():
            alone_us, both_us = _spent_us(server, streams, rounds)
            if repeat < 0:
                continue
            times[name].append(alone_us / (tokens * streams * rounds))
            if name == "hop":
                times["hop_both"].append(both_us / (tokens * streams * rounds))
    return Row(streams, chunk, **{name: Repeats(tuple(us)) for name, us in times.items()})


def _spent_us(server: Up, streams: int, rounds: int) -> tuple[float, float]:
    """The server's CPU time for so many replies, alone and with its children; each reply must be as
    long as the first."""
    alone, both = cpu_ns_of(server.pid, alone=True), cpu_ns_of(server.pid)
    client = subprocess.run(
        [sys.executable, "-m", "bench.client", str(server.port), str(streams), str(rounds)],
        capture_output=True,
        timeout=CLIENT_S,
        check=True,
    )
    alone, both = cpu_ns_of(server.pid, alone=True) - alone, cpu_ns_of(server.pid) - both
    counts = json.loads(client.stdout)
    replies = streams * rounds
    expected = {"replies": replies, "events": replies * (server.stream.events + 1)}  # and [DONE]
    if any(counts[name] != count for name, count in expected.items()):
        raise Wrong(f"over the wire: got {counts}, expected {expected}")
    return alone / 1000, both / 1000


@contextmanager
def up(name: str, words: Script, length: int, chunk: int) -> Iterator[Up]:
    command = [sys.executable, "-m", "bench.server", name, str(length), str(chunk)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = _port(process.stdout.readline())
            yield Up(process.pid, port, seen(_fetch(port), words, whole=name != "floor"))
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _port(hello: bytes) -> int:
    """The port that a server names when it is up: the floor nothing but it, ours in its URL."""
    if (found := re.match(rb"(?:http\S+:)?(\d+)", hello)) is None:
        raise Wrong(f"a server did not start: {hello!r}")
    return int(found[1])


def _fetch(port: int) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/v1/responses", BODY, {"content-type": "application/json"})
        return connection.getresponse().read()
    finally:
        connection.close()
