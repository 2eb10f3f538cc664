"""Streams at once: tokens per second, time to the first token, and the front end's share; and
whether memory stays flat under them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from functools import partial

from trt_responses.prove.bench import Bench
from trt_responses.prove.claims import Failed, Figures, check
from trt_responses.prove.client import Client, Streamed, at_once, broken
from trt_responses.prove.processes import below, cpu_s, resident_mib

QUESTION = "Tell me about the number {}, in as many words as you can."
WHOLE, QUICK = (1, 8, 64), (1, 8)
TOKENS, QUICK_TOKENS = 256, 48
ROUNDS = 4
SERVER_MIB, ENGINE_MIB, GPU_MIB = 24.0, 256.0, 512.0
"""The most growth of the server's memory (explanations are kept up to 8 MiB), of its other
processes, and of a GPU's, after the first round."""


def streams(client: Client, count: int, tokens: int, seed: int = 0) -> list[Streamed]:
    """So many streams at once."""
    work = [
        partial(
            client.stream,
            input=QUESTION.format(seed + n),
            max_output_tokens=tokens,
            temperature=1,
            seed=n,
        )
        for n in range(count)
    ]
    return at_once(work, count)


def load(bench: Bench) -> Figures:
    """1, 8 and 64 streams; none may fail."""
    server = bench.server()
    counts, tokens = (QUICK, QUICK_TOKENS) if bench.wish.quick else (WHOLE, TOKENS)
    streams(server.client, 1, tokens)  # warms it up
    figures: Figures = {}
    for count in counts:
        began, used = time.monotonic(), cpu_s(server.pid)
        ends = streams(server.client, count, tokens)
        wall, spent = time.monotonic() - began, cpu_s(server.pid) - used
        check([(f"{count} streams: {why}", why) for why in broken(ends)[:3]], figures)
        figures[f"{count} streams"] = _figures(ends, wall, spent)
    return figures


def _figures(ends: Sequence[Streamed], wall_s: float, cpu: float) -> Figures:
    total = sum(end.tokens for end in ends)
    first = sorted(end.first_s for end in ends)
    return {
        "tokens per second": round(total / wall_s, 1),
        "first token, median s": round(statistics.median(first), 3),
        "first token, slowest s": round(first[-1], 3),
        "front end, share of a core": round(cpu / wall_s, 3),
        "front end, µs per token": round(cpu / max(1, total) * 1e6, 1),
    }


def memory(bench: Bench) -> Figures:
    """Rounds of streams, after each of which memory is measured."""
    server = bench.server()
    count, tokens = (4, 24) if bench.wish.quick else (32, 256)
    rows: list[tuple[float, float, float]] = []
    for n in range(ROUNDS):
        ends = streams(server.client, count, tokens, seed=n * count)
        check([(why, why) for why in broken(ends)[:3]])
        engine = sum(map(resident_mib, below(server.pid)))
        rows.append((resident_mib(server.pid), engine, -(bench.free_gpu_mib() or 0.0)))
    limits = (SERVER_MIB, ENGINE_MIB, GPU_MIB)
    names = ("server", "its other processes", "GPU")
    grown = {name: round(rows[-1][n] - rows[0][n], 1) for n, name in enumerate(names)}
    figures: Figures = {"responses": ROUNDS * count, "growth, MiB": grown}
    for name, limit in zip(names, limits, strict=True):
        if grown[name] > limit:
            why = f"memory of {name} grew by {grown[name]:.0f} MiB, limit {limit:.0f}"
            raise Failed(why, figures)
    return figures


def seconds(bench: Bench) -> float:
    return 20.0 if bench.wish.quick else 180.0
