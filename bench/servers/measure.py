"""Each server under each load, in turns: CPU of its front ends, tokens by the clock, first deltas.

All servers are up at once, and idle but for the one whose turn it is. A server that cannot be had,
answers wrongly, raises or hangs gets that as its row; the others go on.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import product
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import orjson
from responses_conformance.peers.installed import Absent

from bench.asks import MODEL
from bench.check import Wrong
from bench.servers.load import Load, Outcome
from bench.servers.plays import KINDS, PACED, REQUESTS, SATURATED, Play, plays
from bench.servers.start import CHAT, CONTENDERS
from bench.servers.texts import Reply, checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from responses_conformance.peers.start import Server

    from bench.servers.start import Contender, Starter
    from trt_responses.tokens.vocabulary import Vocabulary

    Say = Callable[[str], None]

STREAMS = (1, 64, 256, 1000)
REPEATS = 3
MOST_S = 660.0
"""When no further run begins: a row has fewer then."""
SATURATED_TOKENS, LEAST_REQUESTS = 40_000, 640
"""Of one run, at least: about half a second."""
UP_S, HANGS_S, CLIENT_S = 90.0, 45.0, 20.0
KEPT = 0.98
"""The part of its pace that a paced stream must have kept to have been paced."""
PATHS = {CHAT: "/v1/chat/completions"}
FIRST = {CHAT: '"reasoning'}


@dataclass(frozen=True, slots=True)
class Run:
    """One run: CPU µs of the front ends for a token, or for a request of 22 ids."""

    cpu_us: float
    rate: float
    """Tokens a second by the clock, or requests."""
    first_p50_ms: float
    first_p99_ms: float
    kept: float = 1.0
    """The part of the engine's pace that was kept."""


@dataclass(slots=True)
class Row:
    """A server under a load, or what stopped it."""

    who: str
    kind: str
    streams: int
    runs: list[Run] = field(default_factory=list)
    fault: str | None = None

    def quartiles(self, name: str) -> tuple[float, float, float]:
        """The first quartile, the median and the third of one of a run's numbers."""
        values = [getattr(run, name) for run in self.runs]
        if len(values) < 2:
            return values[0], values[0], values[0]
        first, _, third = quantiles(values, n=4, method="inclusive")
        return first, median(values), third


@dataclass(slots=True)
class Results:
    """Every row, and what one reply of each contender looked like."""

    rows: list[Row] = field(default_factory=list)
    replies: dict[str, Reply] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


class Field:
    """The servers that are up; one that failed is started again for the next load."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.plays = plays(vocabulary)
        self._vocabulary = vocabulary
        self._up: dict[Starter, tuple[ExitStack, Server]] = {}

    def server(self, contender: Contender) -> Server:
        """A contender's server, started if it is not up."""
        if contender.start not in self._up:
            stack = ExitStack()
            server = stack.enter_context(contender.start(self._vocabulary, self.plays))
            self._up[contender.start] = stack, server
            self._await(contender, server)
        return self._up[contender.start][1]

    def end(self, contender: Contender) -> None:
        if begun := self._up.pop(contender.start, None):
            begun[0].close()

    def close(self) -> None:
        for stack, _ in self._up.values():
            stack.close()
        self._up.clear()

    def _await(self, contender: Contender, server: Server) -> None:
        end_s = time.monotonic() + UP_S
        while True:
            try:
                fetch(contender, server, self.plays[REQUESTS])
                return
            except (OSError, http.client.HTTPException, Wrong) as raised:
                if time.monotonic() > end_s or server.fault():
                    raise Wrong(f"it did not start: {server.fault() or raised}") from None
            time.sleep(0.2)


def measured(
    vocabulary: Vocabulary,
    names: Sequence[str],
    *,
    streams: Sequence[int] = STREAMS,
    repeats: int = REPEATS,
    kinds: Sequence[str] = KINDS,
    contenders: Mapping[str, Sequence[Contender]] = CONTENDERS,
    say: Say = lambda _: None,
) -> Results:
    """Each load at each number of streams, all contenders in turns within each repeat."""
    results, servers, begun_s = Results(), Field(vocabulary), time.monotonic()
    known = [each for name in ("ours", *names) for each in contenders.get(name, ())]
    try:
        ready = [each for each in known if _is_ready(each, servers, results, say)]
        results.rows = [
            Row(each.name, kind, count)
            for kind, count in product(kinds, streams)
            for each in ready
            if kind in each.kinds
        ]
        by_name = {each.name: each for each in ready}
        for repeat in range(repeats):
            for row in results.rows:
                if row.fault is None and time.monotonic() < begun_s + MOST_S:
                    say(f"{row.kind}, {row.streams} streams, {row.who}, {repeat + 1}/{repeats}")
                    _run(row, by_name[row.who], servers, results.replies)
    finally:
        servers.close()
    results.seconds = time.monotonic() - begun_s
    return results


def _is_ready(contender: Contender, servers: Field, results: Results, say: Say) -> bool:
    """Whether a contender is up, says each script, and has warmed up."""
    say(f"starting {contender.name}")
    try:
        server = servers.server(contender)
        for kind, play in servers.plays.items():
            reply = checked(fetch(contender, server, play), play.script)
            results.replies[f"{contender.name}: {kind}"] = reply
        for kind in contender.kinds:
            if kind != PACED:
                run_load(contender, server, servers.plays[kind], 64, kind)
    except (Absent, Wrong, OSError, RuntimeError, http.client.HTTPException) as raised:
        results.absent[contender.name] = str(raised) or type(raised).__name__
        servers.end(contender)
        return False
    return True


def _run(row: Row, contender: Contender, servers: Field, replies: Mapping[str, Reply]) -> None:
    """One more run of a row; a fault ends the row, and its server is started anew."""
    try:
        play, server = servers.plays[row.kind], servers.server(contender)
        outcome = run_load(contender, server, play, row.streams, row.kind)
        frames = outcome.replies * replies[f"{row.who}: {row.kind}"].frames
        if outcome.frames != frames:
            raise Wrong(f"it sent {outcome.frames} frames, {frames} by its checked reply")
        row.runs.append(_figures(row, play, outcome))
    except (Wrong, OSError, RuntimeError, http.client.HTTPException) as raised:
        row.fault = str(raised) or type(raised).__name__
        servers.end(contender)


def _figures(row: Row, play: Play, outcome: Outcome) -> Run:
    tokens = len(play.script)
    units = outcome.replies * (1 if row.kind == REQUESTS else tokens)
    rate, kept = units / outcome.wall_s, 1.0
    if row.kind == PACED:
        kept = min(1.0, lasts_s(play) / outcome.wall_s)
        units = round(outcome.window_s * play.steps_a_second * row.streams * kept)
    first = sorted(outcome.first_ms)
    middle, late = (first[int(part * (len(first) - 1))] for part in (0.5, 0.99))
    return Run(1e6 * outcome.cpu_s / units, rate, middle, late, kept)


def lasts_s(play: Play) -> float:
    """How long a stream takes that keeps its pace; 0 without one."""
    return len(play.script) / play.steps_a_second if play.steps_a_second else 0.0


def run_load(contender: Contender, server: Server, play: Play, streams: int, kind: str) -> Outcome:
    """Run the load generator; `Wrong` if a reply is missing."""
    rounds = {
        PACED: 1,
        SATURATED: max(1, SATURATED_TOKENS // (len(play.script) * streams)),
        REQUESTS: max(2, LEAST_REQUESTS // streams),
    }[kind]
    load = Load(
        server.port,
        path(contender),
        body(contender, play).decode(),
        streams,
        rounds,
        server.pids,
        FIRST.get(contender.api, "_text.delta"),
        lasts_s(play),
        lasts_s(play) + HANGS_S,
    )
    client = subprocess.run(
        [sys.executable, "-m", "bench.servers.load"],
        input=json.dumps(asdict(load)),
        capture_output=True,
        text=True,
        timeout=load.most_s + CLIENT_S,
        check=False,
    )
    if client.returncode:
        raise Wrong(f"the load generator: {client.stderr.strip().splitlines()[-1:]}")
    outcome = Outcome(**json.loads(client.stdout))
    if fault := server.fault() or outcome.fault:
        raise Wrong(fault)
    return outcome


def path(contender: Contender) -> str:
    return PATHS.get(contender.api, "/v1/responses")


def body(contender: Contender, play: Play) -> bytes:
    """The request, whose output limit says what is played."""
    question = "What is the weather?"
    asked: dict[str, Any] = {"model": MODEL, "stream": True}
    if contender.api == CHAT:
        asked |= {
            "messages": [{"role": "user", "content": question}],
            "max_completion_tokens": play.most_tokens,
            "stream_options": {"include_usage": True},
        }
    else:
        asked |= {"input": question, "max_output_tokens": play.most_tokens}
    return orjson.dumps(asked)


def fetch(contender: Contender, server: Server, play: Play) -> bytes:
    """One whole reply."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANGS_S)
    try:
        headers = {"content-type": "application/json"}
        connection.request("POST", path(contender), body(contender, play), headers)
        reply = connection.getresponse()
        stream = reply.read()
    finally:
        connection.close()
    if reply.status != http.client.OK:
        raise Wrong(f"it answered {reply.status}: {stream[:120].decode(errors='replace')}")
    return stream


def faults(results: Results) -> Iterator[str]:
    """What kept each contender from a row."""
    for name, why in results.absent.items():
        yield f"{name}: absent or void ({why})"
    for row in results.rows:
        if row.fault is not None:
            yield f"{row.who}, {row.kind}, {row.streams} streams: {row.fault}"
        elif row.runs and median(run.kept for run in row.runs) < KEPT:
            kept = median(run.kept for run in row.runs)
            yield f"{row.who}, {row.kind}, {row.streams} streams: only {kept:.0%} of its pace kept"
