"""What of the embedded engine's own speed comes through the server: tokens a second of the demo,
driven behind the seam, through `serve`, and through `serve` with the engine in its own process.

Wall time, for a model computes here; contenders take turns, and the ratio is to the engine's own
figure just before. `python -m bench.embedded` is the engine driven directly: it reads how many
streams and rounds on standard input, and answers on standard output.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import uvloop
from rich.table import Table

from bench.asgi import living, stream_of
from bench.check import Wrong
from bench.client import LAST, Counts, Stream, follow, request_of
from trt_responses.app import create_app
from trt_responses.backends.engines import chosen_engine, engine_of
from trt_responses.engine import Gathered
from trt_responses.prepare.shelf.shelf import DEMO
from trt_responses.settings import PREFIX, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from trt_responses.engine import Engine, GenerateOptions, Handle, Health, Limits, Sink

STREAMS = (1, 8)
ROUNDS = {1: 8, 8: 3}
SLOTS = 8
LEAST_TOKENS = 48
"""Of an answer, on the average: of shorter ones the prompts would be what is timed."""
GOAL = 0.95
SERVED = {"server": "never", "engine apart": "always"}
"""The contenders beside the engine itself, and whether its process is one of its own."""
START_S, END_S = 120, 30
GIVEN = {"DATE": "2026-01-01", "SLOTS": str(SLOTS), "LOG_LEVEL": "error", "ENGINE": DEMO}


class Spent(NamedTuple):
    """The tokens of prompts and of answers in one run, and its seconds."""

    read: int
    written: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.written / self.seconds


@dataclass(frozen=True, slots=True)
class Row:
    """So many streams at once: tokens a second of each contender, in turns."""

    streams: int
    engine: tuple[float, ...]
    server: tuple[float, ...]
    apart: tuple[float, ...]

    @property
    def shares(self) -> tuple[float, float]:
        """Of the engine's own figure: through the server, and with the engine's process."""
        return _share(self.server, self.engine), _share(self.apart, self.engine)


def _share(rates: Sequence[float], engine: Sequence[float]) -> float:
    return statistics.median(rate / own for rate, own in zip(rates, engine, strict=True))


def bodies(streams: int) -> list[dict[str, Any]]:
    """What each stream asks: to count, which the demo can, and which takes it longest."""
    return [
        {
            "model": DEMO,
            "input": f"Count from {first} to 20.",
            "temperature": 0,
            "stream": True,
        }
        for first in range(1, streams + 1)
    ]


def rows(engines_dir: Path, repeats: int) -> list[Row]:
    """The engine itself, and through the server in both ways. The demo must be prepared."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        asks = {"engine": stack.enter_context(_direct(engines_dir, folder))}
        for name, process in SERVED.items():
            asks[name] = stack.enter_context(_served(engines_dir, f"{folder}/{process}", process))
        return [_row(asks, streams, repeats) for streams in STREAMS]


def _row(asks: dict[str, Callable[[int, int], Spent]], streams: int, repeats: int) -> Row:
    rates: dict[str, list[float]] = {name: [] for name in asks}
    for repeat in range(-1, repeats):  # the first one warms up
        spent = {name: ask(streams, ROUNDS[streams]) for name, ask in asks.items()}
        if len({one.read for one in spent.values()}) > 1:
            raise Wrong(f"embedded: the prompts are not the same ones: {spent}")
        if any(one.written < LEAST_TOKENS * streams * ROUNDS[streams] for one in spent.values()):
            raise Wrong(f"embedded: the demo says too little to be timed: {spent}")
        if repeat >= 0:
            for name, one in spent.items():
                rates[name].append(one.rate)
    return Row(streams, *map(tuple, rates.values()))


# --- through the server -----------------------------------------------------------------------


@contextmanager
def _served(
    engines_dir: Path, data_dir: str, process: str
) -> Iterator[Callable[[int, int], Spent]]:
    given = GIVEN | {"DATA_DIR": data_dir, "ENGINE_PROCESS": process}
    environment = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}
    environment |= {PREFIX + name: value for name, value in given.items()}
    command = [sys.executable, "-m", "trt_responses", "serve", "--port", "0"]
    with subprocess.Popen(
        [*command, "--engines-dir", str(engines_dir)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            hello = server.stdout.readline()
            if (found := re.search(r":(\d+) is ready", hello)) is None:
                raise Wrong(f"embedded: the server did not start: {hello!r}")
            port = int(found[1])
            yield lambda streams, rounds: _through(port, streams, rounds)
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(END_S)
            except subprocess.TimeoutExpired:
                server.kill()


def _through(port: int, streams: int, rounds: int) -> Spent:
    """By the cheapest client there is, for the model computes on the same cores."""
    counts, received = Counts(), [bytearray() for _ in range(streams)]
    begun = time.perf_counter()
    follow(
        Stream(port, rounds, counts, request_of(orjson.dumps(body)), one.extend)
        for body, one in zip(bodies(streams), received, strict=True)
    )
    seconds = time.perf_counter() - begun
    usages = [usage_of(reply) for one in received for reply in bytes(one).split(LAST)[:-1]]
    if len(usages) != streams * rounds:
        raise Wrong(f"embedded: {len(usages)} of {streams * rounds} replies came whole")
    read, written = (sum(one[f"{kind}_tokens"] for one in usages) for kind in ("input", "output"))
    return Spent(read, written, seconds)


def usage_of(stream: bytes) -> dict[str, int]:
    """What a stream's last event says of tokens; the mark of its end may stand behind that."""
    event = stream.removesuffix(b"data: [DONE]\n\n").rpartition(b"\ndata: ")[2]
    try:
        response = orjson.loads(event.partition(b"\n\n")[0])["response"]
    except (orjson.JSONDecodeError, KeyError):
        raise Wrong(f"embedded: a stream ends with {stream[-200:]!r}") from None
    if response["status"] not in ("completed", "incomplete"):
        raise Wrong(f"embedded: a response ended {response['status']}: {response['error']}")
    usage: dict[str, int] = response["usage"]
    return usage


# --- the engine itself ------------------------------------------------------------------------


@contextmanager
def _direct(engines_dir: Path, folder: str) -> Iterator[Callable[[int, int], Spent]]:
    with subprocess.Popen(
        [sys.executable, "-m", "bench.embedded", str(engines_dir), f"{folder}/direct"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def ask(streams: int, rounds: int) -> Spent:
            requests.write(f"{streams} {rounds}\n")
            requests.flush()
            if not (line := answers.readline()):
                raise Wrong("embedded: the engine's own process ended")
            return Spent(*json.loads(line))

        try:
            yield ask
        finally:
            requests.close()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()


@dataclass
class Recorder:
    """An engine that also records its requests, in order."""

    engine: Engine
    requests_seen: list[tuple[tuple[int, ...], GenerateOptions]] = field(default_factory=list)

    async def start(self) -> None:
        await self.engine.start()

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        self.requests_seen.append((tuple(prompt_ids), options))
        return self.engine.generate(prompt_ids, options, sink)

    def health(self) -> Health:
        return self.engine.health()

    def limits(self) -> Limits:
        return self.engine.limits()

    async def stop(self, deadline_s: float) -> None:
        await self.engine.stop(deadline_s)


async def _drive(engines_dir: str, data_dir: str) -> None:
    """Have the server's own code ask the engine once for each prompt, and then ask it directly."""
    given = {f"{PREFIX}{name}": value for name, value in GIVEN.items()}
    given |= {f"{PREFIX}ENGINES_DIR": engines_dir, f"{PREFIX}DATA_DIR": data_dir}
    settings = Settings.from_environment(given)
    recorder = Recorder(engine_of(chosen_engine(settings), settings))
    app = create_app(settings, engine=recorder)
    async with living(app):
        for body in bodies(max(STREAMS)):
            usage_of(await stream_of(app, orjson.dumps(body)))
        requests_seen = tuple(recorder.requests_seen)
        while line := await asyncio.to_thread(sys.stdin.readline):
            streams, rounds = map(int, line.split())
            begun = time.perf_counter()
            usages = await asyncio.gather(
                *(_answers(recorder.engine, *one, rounds) for one in requests_seen[:streams])
            )
            seconds = time.perf_counter() - begun
            read = rounds * sum(len(prompt_ids) for prompt_ids, _ in requests_seen[:streams])
            print(json.dumps([read, sum(usages), seconds]), flush=True)


async def _answers(
    engine: Engine, prompt_ids: tuple[int, ...], options: GenerateOptions, rounds: int
) -> int:
    """The tokens of one stream's answers, one after another."""
    written = 0
    for _ in range(rounds):
        answer = Gathered()
        engine.generate(prompt_ids, options, answer)
        if (last := await answer.last).finish == "error":
            raise RuntimeError(last.error)
        written += len(answer.token_ids)
    return written


def table(rows: list[Row]) -> Table:
    """The rows, for people."""
    shown = Table(title="The embedded engine, the demo: tokens a second, medians")
    for name in ("streams", "the engine's own", "through the server", "share", "goal"):
        shown.add_column(name, justify="right")
    for name in ("engine apart", "share", "goal"):
        shown.add_column(name, justify="right")
    for row in rows:
        cells = [str(row.streams), f"{statistics.median(row.engine):,.0f}"]
        for rates, share in zip((row.server, row.apart), row.shares, strict=True):
            met = share >= GOAL
            goal = f"[{'green' if met else 'red'}]{'≥' if met else 'missed:'} {GOAL:.0%}[/]"
            cells += [f"{statistics.median(rates):,.0f}", f"{share:.1%}", goal]
        shown.add_row(*cells)
    return shown


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_drive(*sys.argv[1:]))
