"""A burst of short requests: how long each waits for its first delta, by its client's clock.

Wall time, of a client in another process: what counts is the order in which the server works. So
many connections ask for a chat completion at once, and again as soon as their answer is whole:
nothing is stored, so that the memory of a store is no part of it.
`python -m bench.burst PORT STREAMS ROUNDS` is the client.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING

from rich.table import Table

from bench.asks import CHAT_BODY
from bench.check import Wrong
from bench.client import Counts, Stream, follow, request_of
from bench.script import script
from bench.wire import up

if TYPE_CHECKING:
    from trt_responses.tokens.vocabulary import Vocabulary

STREAMS = (64, 256)
ROUNDS = (1, 5)
"""Requests of each connection: a burst by itself, and one that goes on."""
LENGTH = 8
ASK = request_of(CHAT_BODY, b"/v1/chat/completions")
FIRST = b'"delta":{"reasoning'
"""The first delta's name."""
GOAL = 3.0
"""The most that the slowest hundredth may wait, by the median's wait."""
CLIENT_S = 120


@dataclass(frozen=True, slots=True)
class Burst:
    """First deltas of so many requests at once, in ms, from the request's last byte."""

    contender: str
    streams: int
    rounds: int
    p50_ms: tuple[float, ...]
    p99_ms: tuple[float, ...]

    @property
    def name(self) -> str:
        begun = "at once" if self.rounds == 1 else f"{self.rounds} times each"
        return f"{self.streams} requests, {begun}, {self.contender}"

    @property
    def ratio(self) -> float:
        pairs = zip(self.p99_ms, self.p50_ms, strict=True)
        return median(p99 / p50 for p99, p50 in pairs)


class Timed(Stream):
    """A connection that notes when the first delta of each answer comes."""

    __slots__ = ("_asked", "_first_ms")

    def __init__(self, port: int, rounds: int, counts: Counts, first_ms: list[float]) -> None:
        super().__init__(port, rounds, counts, ASK, self._note)
        self._first_ms = first_ms
        self._asked: float | None = None

    def ask(self) -> bool:
        self._asked = time.perf_counter()
        return super().ask()

    def _note(self, data: bytes) -> None:
        if self._asked is not None and FIRST in data:
            self._first_ms.append((time.perf_counter() - self._asked) * 1e3)
            self._asked = None


def rows(vocabulary: Vocabulary, repeats: int) -> list[Burst]:
    """Each number of streams, with the engine in the server and apart, in turns."""
    words = script(vocabulary, LENGTH)
    with up("ours", words, LENGTH, 1) as alone, up("hop", words, LENGTH, 1) as apart:
        servers = {"engine inside": alone.port, "engine apart": apart.port}
        return [
            row
            for streams in STREAMS
            for rounds in ROUNDS
            for row in _turns(servers, streams, rounds, repeats)
        ]


def table(bursts: list[Burst]) -> Table:
    """The rows, for people."""
    table = Table(title="Bursts of short requests: ms to the first delta, median of the repeats")
    for name in ("what", "p50", "p99", "p99 by p50", "goal"):
        table.add_column(name)
    for row in bursts:
        met = row.ratio <= GOAL
        table.add_row(
            row.name,
            f"{median(row.p50_ms):.1f}",
            f"{median(row.p99_ms):.1f}",
            f"{row.ratio:.2f} ×",
            f"[{'green' if met else 'red'}]{'≤' if met else 'missed:'} {GOAL}[/]",
        )
    return table


def _turns(servers: dict[str, int], streams: int, rounds: int, repeats: int) -> list[Burst]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
    for repeat in range(-1, repeats):  # the first one warms up
        for name, port in servers.items():
            waits = _waits(port, streams, rounds)
            if repeat >= 0:
                found[name].append(waits)
    return [
        Burst(name, streams, rounds, *zip(*measured, strict=True))
        for name, measured in found.items()
    ]


def _waits(port: int, streams: int, rounds: int) -> tuple[float, float]:
    client = subprocess.run(
        [sys.executable, "-m", "bench.burst", str(port), str(streams), str(rounds)],
        capture_output=True,
        timeout=CLIENT_S,
        check=True,
    )
    first_ms = json.loads(client.stdout)
    if len(first_ms) != streams * rounds:
        raise Wrong(f"a burst: {len(first_ms)} first deltas of {streams * rounds}")
    cuts = quantiles(first_ms, n=100, method="inclusive")
    return cuts[49], cuts[98]


def main(port: str, streams: str, rounds: str) -> None:
    first_ms: list[float] = []
    counts = Counts()
    follow(Timed(int(port), int(rounds), counts, first_ms) for _ in range(int(streams)))
    print(json.dumps(first_ms))


if __name__ == "__main__":
    main(*sys.argv[1:])
