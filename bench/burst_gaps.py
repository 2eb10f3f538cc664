"""Gaps between the deltas of running streams, alone and while bursts of short ones begin.

Wall time, of a client in another process; the bursts have a client of their own, so that its work
delays no delta. The server and its paced engine, each in a process, are those of `bench.servers`.
`python -m bench.burst_gaps PORT BODY STREAMS BEGIN_S…` is a client: so many streams at each time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median, quantiles
from threading import Timer
from typing import TYPE_CHECKING

from rich.table import Table

from bench.check import Wrong
from bench.client import Counts, Stream, follow, request_of
from bench.script import TEXTS, Script, ids
from bench.servers.measure import CLIENT_S, PATHS, body, fetch
from bench.servers.plays import STEPS_A_SECOND, Play
from bench.servers.start import CHAT, ONE, Contender
from bench.servers.texts import checked
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trt_responses.tokens.vocabulary import Vocabulary

    Gaps = tuple[float, float, float]  # ms: p50, p99 and the longest, of all streams of a run

RUNNING, SHORT = 16, 64
TOKENS = {"running": 300, "short": 16}
BURSTS_S = tuple(number / 2 for number in range(1, 11))
"""The last burst ends before the running streams do."""
DELTA = b'"delta":{"content'
GOAL = 1.2
"""The most that p99 with bursts may be, by p99 alone."""


@dataclass(frozen=True, slots=True)
class Row:
    """The runs without bursts and with them, in turns."""

    alone: tuple[Gaps, ...]
    bursts: tuple[Gaps, ...]

    @property
    def ratios(self) -> Gaps:
        """With bursts, by the run alone just before: the medians."""
        pairs = [zip(*pair, strict=True) for pair in zip(self.bursts, self.alone, strict=True)]
        return _medians([burst / alone for burst, alone in pair] for pair in pairs)


@dataclass(slots=True)
class Arrivals:
    """Notes the gaps of one stream. Of two deltas in one read, the second has a gap of 0."""

    gaps_ms: list[float]
    clock: Callable[[], float] = time.perf_counter
    _last_s: float | None = None
    _rest: bytes = b""

    def look(self, data: bytes) -> None:
        now_s = self.clock()
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        for frame in frames:
            if DELTA in frame:
                if self._last_s is not None:
                    self.gaps_ms.append(1e3 * (now_s - self._last_s))
                self._last_s = now_s


def row(vocabulary: Vocabulary, repeats: int) -> Row:
    chat = Contender("this server, chat", ONE, CHAT)
    plays = {
        name: Play(1000 + tokens, plain(vocabulary, tokens), STEPS_A_SECOND)
        for name, tokens in TOKENS.items()
    }
    running, short = (body(chat, play).decode() for play in plays.values())
    found: dict[tuple[float, ...], list[Gaps]] = {(): [], BURSTS_S: []}
    with chat.start(vocabulary, plays) as server, ThreadPoolExecutor() as pool:
        for play in plays.values():
            checked(fetch(chat, server, play), play.script)
        for repeat in range(-1, repeats):  # the first one warms up
            for bursts_s, gaps in found.items():
                beside = pool.submit(_client, server.port, short, SHORT, bursts_s)
                gaps_ms = _client(server.port, running, RUNNING, (0.0,))
                beside.result()
                if repeat >= 0:
                    cuts = quantiles(gaps_ms, n=100, method="inclusive")
                    gaps.append((cuts[49], cuts[98], max(gaps_ms)))
    return Row(*map(tuple, found.values()))


def plain(vocabulary: Vocabulary, tokens: int) -> Script:
    """An answer without a thought, of whole characters: each step of it brings a delta."""
    answer = (ids(vocabulary, TEXTS[0]) * tokens)[:tokens]
    header = (CONTROL.channel, *ids(vocabulary, "final"), CONTROL.message)
    return Script((*header, *answer, CONTROL.return_), "", vocabulary.text(answer))


def table(row: Row) -> Table:
    """The row, for people."""
    title = f"Gaps of {RUNNING} streams at {STEPS_A_SECOND} tokens a second: ms, median of repeats"
    table = Table("what", "p50", "p99", "longest", "goal of p99", title=title)
    table.add_row("alone", *(f"{ms:.1f}" for ms in _medians(row.alone)))
    beside = f"{SHORT} more begin every half second"
    table.add_row(beside, *(f"{ms:.1f}" for ms in _medians(row.bursts)))
    met = row.ratios[1] <= GOAL
    verdict = f"[{'green' if met else 'red'}]{'≤' if met else 'missed:'} {GOAL}[/]"
    table.add_row("… by alone", *(f"{ratio:.2f} ×" for ratio in row.ratios), verdict)
    return table


def _medians(runs: Iterable[Iterable[float]]) -> Gaps:
    p50, p99, longest = map(median, zip(*runs, strict=True))
    return p50, p99, longest


def _client(port: int, body: str, streams: int, begin_s: tuple[float, ...]) -> list[float]:
    given = (str(port), body, str(streams), *map(str, begin_s))
    command = [sys.executable, "-m", "bench.burst_gaps", *given]
    replies, gaps_ms = json.loads(subprocess.check_output(command, timeout=CLIENT_S))
    if replies != [streams] * len(begin_s):
        raise Wrong(f"gaps beside bursts: {replies} replies, {streams} each time were to come")
    return [*gaps_ms]


def main(port: str, body: str, streams: str, *begin_s: str) -> None:
    request = request_of(body.encode(), PATHS[CHAT].encode())
    counts = [Counts() for _ in begin_s]
    gaps_ms: list[float] = []

    def begin(counts: Counts) -> None:
        looks = [Arrivals(gaps_ms).look for _ in range(int(streams))]
        follow(Stream(int(port), 1, counts, request, look) for look in looks)

    timers = [Timer(float(s), begin, (each,)) for s, each in zip(begin_s, counts, strict=True)]
    for timer in timers:
        timer.start()
    for timer in timers:
        timer.join()
    print(json.dumps(([each.replies for each in counts], gaps_ms)))


if __name__ == "__main__":
    main(*sys.argv[1:])
