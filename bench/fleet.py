"""What a second front end brings, and what the way to an engine process costs: `serve --frontends`
beside one front end and beside the engine in the web process, over the same script.

Load generator, engine and front ends share the cores of this machine, so that tokens by the clock
say little. What counts is the CPU time of the busiest front end: with a core for each, it would end
last. `python -m bench.fleet KIND LENGTH CHUNK STEPS FOLDER` is one contender.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from rich.table import Table

from bench import hosted
from bench.asks import BODY, MODEL
from bench.check import Wrong, seen
from bench.script import script
from bench.timing import children_of, cpu_ns_of
from trt_responses.app import create_app
from trt_responses.fleet.fleet import serve_fleet
from trt_responses.logs import log_to_stderr
from trt_responses.prepare.shelf.shelf import DEMO
from trt_responses.serve.server import Server, bound, run_server
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.check import Seen
    from bench.script import Script
    from trt_responses.tokens.vocabulary import Vocabulary

ALONE, ONE, TWO = KINDS = ("alone", "one", "two")
"""The engine in the web process; one front end, and two, over an engine process."""
FRONTS = {ONE: 1, TWO: 2}
CHUNKS = (1, 4, 16)
STREAMS = 256
"""Connections are dealt to front ends by chance: of 256 the busier one gets 134 on the average, of
64 it would get 35."""
STEPS_A_SECOND = 100
PACED_REPEATS = 3
SCALE_GOAL = 1.7
HOP_GOAL = 0.15
START_S, END_S, CLIENT_S = 120, 30, 300


@dataclass(frozen=True, slots=True)
class Cost:
    """What so many tokens took in one run."""

    tokens: int
    wall_s: float
    fronts_s: tuple[float, ...]
    """CPU seconds of each process that serves HTTP, of all its threads."""
    engine_s: float
    """CPU seconds of the engine's process; none where the engine is in the web process."""

    @property
    def capacity(self) -> float:
        """Tokens for each second of the busiest front end's CPU."""
        return self.tokens / max(self.fronts_s)

    @property
    def share(self) -> float:
        """The busiest front end's part of all front ends' CPU."""
        return max(self.fronts_s) / sum(self.fronts_s)

    @property
    def front_us(self) -> float:
        return 1e6 * sum(self.fronts_s) / self.tokens

    @property
    def engine_us(self) -> float:
        return 1e6 * self.engine_s / self.tokens


@dataclass(frozen=True, slots=True)
class Row:
    """So many ids a step, as fast as the engine can or so many steps a second; the runs of each
    contender, in turns."""

    chunk: int
    steps_a_second: int
    alone: tuple[Cost, ...]
    one: tuple[Cost, ...]
    two: tuple[Cost, ...]

    @property
    def contenders(self) -> tuple[tuple[Cost, ...], ...]:
        return self.alone, self.one, self.two

    @property
    def scale(self) -> float:
        """Tokens for a second of two front ends by those of one."""
        pairs = zip(self.two, self.one, strict=True)
        return median(two.capacity / one.capacity for two, one in pairs)

    @property
    def hop_front(self) -> float:
        """CPU for a token of a front end alone, by that of a server with the engine in it, less
        1."""
        pairs = zip(self.one, self.alone, strict=True)
        return median(one.front_us / alone.front_us for one, alone in pairs) - 1

    @property
    def hop(self) -> float:
        """The same with the engine's process: the engine's own work is in both, so that what is
        more is the way between them."""
        pairs = zip(self.one, self.alone, strict=True)
        return median((one.front_us + one.engine_us) / a.front_us for one, a in pairs) - 1


def rows(vocabulary: Vocabulary, length: int, engines_dir: Path, repeats: int) -> list[Row]:
    """Each number of ids a step with streams as fast as they can, and one id a step at a pace that
    every server keeps. The demo must be prepared, whose name and card the front ends serve by."""
    words = script(vocabulary, length)
    rows = []
    for chunk, steps in (*((chunk, 0) for chunk in CHUNKS), (1, STEPS_A_SECOND)):
        with ExitStack() as stack:
            given = (str(length), str(chunk), str(steps))
            begun = {k: stack.enter_context(process(k, given, engines_dir)) for k in KINDS}
            servers = {kind: up(kind, one, words) for kind, one in begun.items()}
            times = min(repeats, PACED_REPEATS) if steps else repeats
            costs: dict[str, list[Cost]] = {kind: [] for kind in KINDS}
            for repeat in range(-1, times):  # the first one warms up
                for kind, server in servers.items():
                    cost = server.cost(STREAMS)
                    if repeat >= 0:
                        costs[kind].append(cost)
        rows.append(Row(chunk, steps, *(tuple(costs[kind]) for kind in KINDS)))
    return rows


@dataclass(frozen=True, slots=True)
class Up:
    """A server that is up, and what one of its streams looks like."""

    port: int
    fronts: tuple[int, ...]
    engine: int | None
    stream: Seen
    tokens: int

    def cost(self, streams: int) -> Cost:
        """Have each of so many connections make one response; each must be as long as the first."""
        before, begun = self._cpu_ns(), time.perf_counter()
        client = subprocess.run(
            [sys.executable, "-m", "bench.client", str(self.port), str(streams), "1"],
            capture_output=True,
            timeout=CLIENT_S,
            check=True,
        )
        wall_s = time.perf_counter() - begun
        spent = [(b - a) / 1e9 for a, b in zip(before, self._cpu_ns(), strict=True)]
        counts = json.loads(client.stdout)
        if (counts["replies"], counts["events"]) != (streams, streams * (self.stream.events + 1)):
            raise Wrong(f"front ends: got {counts} of {streams} replies")
        engine_s = spent.pop() if self.engine is not None else 0.0
        return Cost(self.tokens * streams, wall_s, tuple(spent), engine_s)

    def _cpu_ns(self) -> list[int]:
        engine = [] if self.engine is None else [self.engine]
        return [cpu_ns_of(pid, alone=True) for pid in (*self.fronts, *engine)]


@contextmanager
def process(
    kind: str, given: tuple[str, ...], engines_dir: Path
) -> Iterator[subprocess.Popen[str]]:
    """The process of one contender, which begins meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        begun = subprocess.Popen(
            [sys.executable, "-m", "bench.fleet", kind, *given, folder, str(engines_dir)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert begun.stdout is not None
        try:
            yield begun
        finally:
            begun.send_signal(signal.SIGINT)
            try:
                begun.wait(END_S)
            except subprocess.TimeoutExpired:
                begun.kill()
                begun.wait()
            begun.stdout.close()


def up(kind: str, begun: subprocess.Popen[str], words: Script) -> Up:
    """A contender that serves, once its answer was right."""
    assert begun.stdout is not None
    hello = begun.stdout.readline()
    if (found := re.search(r":(\d+) is ready", hello)) is None:
        raise Wrong(f"front ends: {kind} did not start: {hello!r}")
    port = int(found[1])
    stream = seen(_fetch(port), words, whole=True)
    return Up(port, *_processes(begun.pid, kind), stream, len(words))


def _processes(pid: int, kind: str) -> tuple[tuple[int, ...], int | None]:
    """The processes that serve HTTP, and that of the engine."""
    if kind == ALONE:
        return (pid,), None
    commands = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children_of(pid)}
    fronts = tuple(child for child, line in commands.items() if b"fleet.front_end" in line)
    (engine,) = (child for child, line in commands.items() if b"bench.hosted" in line)
    assert len(fronts) == FRONTS[kind]
    return fronts, engine


def _fetch(port: int) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)
    try:
        connection.request("POST", "/v1/responses", BODY, {"content-type": "application/json"})
        return connection.getresponse().read()
    finally:
        connection.close()


def tables(rows: list[Row]) -> Iterator[Table]:
    """The rows, for people."""
    scale = Table(title="Two front ends: tokens for each second of the busiest one's CPU")
    hop = Table(title="The way to an engine process: CPU µs for each token")
    for name in (
        *("ids a step", "steps a second", "one", "two", "two by one", "goal", "busier's part"),
        "by the clock: engine inside / one / two",
    ):
        scale.add_column(name, justify="right")
    for name in (
        *("ids a step", "steps a second", "engine inside", "front end", "engine's process"),
        *("front end by inside", "both by inside", "goal"),
    ):
        hop.add_column(name, justify="right")
    for row in rows:
        begin = (str(row.chunk), str(row.steps_a_second or "all it can"))
        one, two = (median(cost.capacity for cost in costs) for costs in (row.one, row.two))
        rates = (median(c.tokens / c.wall_s for c in costs) for costs in row.contenders)
        scale.add_row(
            *(*begin, f"{one:,.0f}", f"{two:,.0f}", f"{row.scale:.2f} ×", _least(row.scale)),
            f"{median(cost.share for cost in row.two):.1%}",
            " / ".join(f"{rate:,.0f}" for rate in rates),
        )
        hop.add_row(
            *(*begin, f"{median(cost.front_us for cost in row.alone):.2f}"),
            *(f"{median(getattr(c, n) for c in row.one):.2f}" for n in ("front_us", "engine_us")),
            *(f"{row.hop_front:+.0%}", f"{row.hop:+.0%}", _most(row.hop) if row.chunk == 1 else ""),
        )
    yield from (scale, hop)


def _least(scale: float) -> str:
    met = scale >= SCALE_GOAL
    return f"[{'green' if met else 'red'}]{'≥' if met else 'missed:'} {SCALE_GOAL}[/]"


def _most(hop: float) -> str:
    met = hop <= HOP_GOAL
    return f"[{'green' if met else 'red'}]{'≤' if met else 'missed:'} {HOP_GOAL:.0%}[/]"


def main(kind: str, length: str, chunk: str, steps: str, folder: str, engines_dir: str) -> None:
    """Serve one contender until SIGINT."""
    given = {"length": int(length), "chunk": int(chunk), "steps_a_second": int(steps)}
    settings = Settings(
        model=MODEL,
        engine=DEMO,
        engines_dir=Path(engines_dir),
        data_dir=Path(folder),
        store=f"sqlite:///{folder}/history.db",
        port=0,
        frontends=FRONTS.get(kind, 1),
        max_waiting=hosted.MAX_BATCH,
        date="2026-01-01",
        log_level="error",
    )
    if kind == ALONE:
        log_to_stderr(settings)
        with suppress(KeyboardInterrupt), bound(settings) as address:
            app = create_app(settings, engine_of=lambda *_: hosted.made(given))
            run_server(Server(app, settings), address)
        return

    serve_fleet(settings, hosted.process(*given.values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
