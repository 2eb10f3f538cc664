"""Ten times as many requests as there is room for: who is let in waits no longer than alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from scripts.faults.servers import KEY, Row, Server, resident_mib

if TYPE_CHECKING:
    from pathlib import Path

    from scripts.faults.servers import Kind

TIMES = 10
PLACES = 4
ALONE = 40
"""Requests one after another, before the load."""
MOST_DELAY = 1.5
"""Of the first token's 95th percentile, loaded by alone."""
MOST_GROWTH_MIB = 8.0
"""After the first quarter of the load."""
BODY = orjson.dumps({"model": "demo", "input": "Count.", "stream": True, "store": False})
REQUEST = (
    f"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {KEY}\r\n"
    f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\nconnection: close\r\n\r\n"
).encode() + BODY


@dataclass
class Outcome:
    """What the clients of a load received."""

    first_s: list[float] = field(default_factory=list)
    """From the first byte sent to the first token, of each that was let in."""
    whole_s: list[float] = field(default_factory=list)
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    """Replies that are neither a whole answer nor a refusal that clients retry."""

    @property
    def p95_s(self) -> float:
        return statistics.quantiles(self.first_s, n=20)[-1]


def overload(folder: Path, kind: Kind, seconds: float) -> Row:
    """The queue is empty by setting, so each request is admitted at once or gets a `Retry-After`.
    The server has a core of its own, and its clients have the others."""
    row = Row("ten times the load")
    apart = shutil.which("taskset") and (os.cpu_count() or 1) > 1
    pinned = ("taskset", "-c", "0") if apart else ()
    # Without keys: half of this queue would leave an owner no place.
    server = Server(folder, kind, within=pinned, api_keys="", max_running=PLACES, max_waiting=0)
    with server.running():
        before = os.sched_getaffinity(0)
        if apart:
            os.sched_setaffinity(0, before - {0})
        try:
            alone, loaded, memory = asyncio.run(_play(server, seconds))
        finally:
            os.sched_setaffinity(0, before)
    delay = loaded.p95_s / alone.p95_s
    growth = memory[-1] - memory[len(memory) // 4]
    row.name += (
        f": first tokens' p95 {delay:.2f} times that of one alone, {loaded.refused} refused, "
        f"memory {growth:+.1f} MiB: seconds to the slowest first token"
    )
    row.tried = len(loaded.first_s) + loaded.refused
    row.acknowledged = len(loaded.first_s)
    row.seconds = loaded.first_s
    row.lost += [*alone.wrong, *loaded.wrong, *server.forbidden_lines()]
    if not loaded.refused:
        row.lost.append("no request was refused: the load was too low")
    if delay > MOST_DELAY:
        row.lost.append(f"first tokens came {delay:.2f} times later")
    if growth > MOST_GROWTH_MIB:
        row.lost.append(f"memory grew by {growth:.1f} MiB")
    return row


async def _play(server: Server, seconds: float) -> tuple[Outcome, Outcome, list[float]]:
    alone, loaded = Outcome(), Outcome()
    for _ in range(ALONE):
        await _ask(server.port, alone)
    pause_s = statistics.median(alone.whole_s) / PLACES / TIMES
    memory: list[float] = []
    begun_s = due_s = time.monotonic()
    async with asyncio.TaskGroup() as asking:
        while due_s < begun_s + seconds:
            asking.create_task(_ask(server.port, loaded))
            memory.append(resident_mib(server.process.pid))
            due_s += pause_s
            await asyncio.sleep(due_s - time.monotonic())
    return alone, loaded, memory


async def _ask(port: int, outcome: Outcome) -> None:
    begun_s = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            _count_refusal(head, await reader.read(), outcome)
            return
        await reader.readuntil(b"output_text.delta")
        outcome.first_s.append(time.monotonic() - begun_s)
        rest = await reader.read()
        outcome.whole_s.append(time.monotonic() - begun_s)
        if b'"response.completed"' not in rest:
            outcome.wrong.append(f"a stream that was cut: {rest[-200:]!r}")
    finally:
        writer.close()


def _count_refusal(head: bytes, body: bytes, outcome: Outcome) -> None:
    """A 503 `server_busy` with a wait of 1 to 5 s, or it is wrong."""
    outcome.refused += 1
    lines = head.lower().split(b"\r\n")
    lawful = (
        lines[0].startswith(b"http/1.1 503")
        and b'"server_busy"' in body
        and b"x-should-retry: true" in lines
        and any(b"retry-after: %d" % wait in lines for wait in range(1, 6))
    )
    if not lawful:
        outcome.wrong.append(f"{lines[0]!r}: {body[:200]!r}")
