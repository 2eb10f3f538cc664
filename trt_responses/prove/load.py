"""Streams at once: tokens per second, time to the first token, and the front end's share; and
whether memory stays flat under them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from trt_responses.prepare.hardware import visible_gpus
from trt_responses.prove.bench import Bench
from trt_responses.prove.claims import Figures, check
from trt_responses.prove.client import Client, Streamed, broken
from trt_responses.prove.server import Server, below, resident_mib

QUESTION = "Tell me about the number {}, in as many words as you can."
WHOLE, QUICK = ((1, 8, 64), 256), ((1, 8), 48)
"""How many streams at once, and the tokens of each."""
ROUNDS = 4
LIMITS_MIB = {"server": 24.0, "its other processes": 256.0, "GPU": 512.0}
"""The most growth after the first round. The server keeps explanations, up to 8 MiB."""


def streams(client: Client, count: int, tokens: int, seed: int = 0) -> list[Streamed]:
    """So many streams at once. Raises a `Failed` if one of them fails."""

    def stream(n: int) -> Streamed:
        return client.stream(input=QUESTION.format(seed + n), max_output_tokens=tokens)

    with ThreadPoolExecutor(count) as pool:
        ends = list(pool.map(stream, range(count)))
    check({f"{count} streams: {why}": why for why in broken(ends)[:3]})
    return ends


def load(bench: Bench) -> Figures:
    """1, 8 and 64 streams; none may fail."""
    server = bench.server()
    counts, tokens = QUICK if bench.wish.quick else WHOLE
    streams(server.client, 1, tokens)  # warms it up
    figures: Figures = {}
    for count in counts:
        began, used = time.monotonic(), _reading(server, "cpu_seconds_total")
        ends = streams(server.client, count, tokens)
        wall, spent = time.monotonic() - began, _reading(server, "cpu_seconds_total") - used
        figures[f"{count} streams"] = _figures(ends, wall, spent)
    return figures


def _figures(ends: Sequence[Streamed], wall_s: float, cpu: float) -> Figures:
    total, first = sum(end.tokens for end in ends), [end.first_s for end in ends]
    return {
        "tokens per second": round(total / wall_s, 1),
        "first token, median s": round(statistics.median(first), 3),
        "first token, slowest s": round(max(first), 3),
        "front end, share of a core": round(cpu / wall_s, 3),
        "front end, µs per token": round(cpu / max(1, total) * 1e6, 1),
    }


def memory(bench: Bench) -> Figures:
    """Rounds of streams, after each of which memory is measured."""
    server = bench.server()
    count, tokens = (4, 24) if bench.wish.quick else (32, 256)
    rows = []
    for n in range(ROUNDS):
        streams(server.client, count, tokens, seed=n * count)
        rows.append(_used_mib(server))
    grown = {name: round(rows[-1][name] - rows[0][name], 1) for name in LIMITS_MIB}
    wrong = {
        f"memory of {name} grew by {grown[name]:.0f} MiB, limit {most:.0f}": grown[name] > most
        for name, most in LIMITS_MIB.items()
    }
    return check(wrong, {"responses": ROUNDS * count, "growth, MiB": grown})


def _used_mib(server: Server) -> dict[str, float]:
    others = sum(map(resident_mib, below(server.pid)))
    gpus = sum(gpu.memory_bytes - gpu.free_bytes for gpu in visible_gpus()[0]) / 2**20
    own = _reading(server, "resident_bytes") / 2**20
    return {"server": own, "its other processes": others, "GPU": gpus}


def _reading(server: Server, name: str) -> float:
    return sum(server.client.metrics(name).values())
