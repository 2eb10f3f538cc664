"""Play hostile bodies against the served app, and print what each of them costs everyone else.

For each body: the answer, the longest time that it held the event loop, the CPU time and the memory
that it took beside itself. Each is played in a process of its own, which is ended after a while.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import served
from tests.support.bodies import reported, stretched
from tests.support.hold import watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.support.bodies import Body

    Row = tuple[str, float, float, float]

PIECE = 64 * 1024
MEMORY_BYTES = 8 << 30
AT_MOST_S = 60.0
WORST = 40
MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="print every body, not the worst alone")
    parser.add_argument("--only", default="", help="bodies whose name holds this")
    parser.add_argument("--seconds", type=float, default=600.0, help="begin no body after so long")
    chosen = parser.parse_args()
    served.vocabulary()
    asyncio.run(_played(b'{"model":"demo","input":"Hello"}'))  # what is made once is made
    print(f"{'hold ms':>8} {'CPU ms':>8} {'MiB':>6}  answer")
    ended = time.monotonic() + chosen.seconds
    show(reported(), chosen.only, sys.maxsize, ended)
    print()
    show(stretched(), chosen.only, sys.maxsize if chosen.all else WORST, ended)


def show(bodies: Iterable[Body], only: str, most: int, ended: float) -> None:
    rows = [
        (body.name, *in_a_process(body))
        for body in bodies
        if only in body.name and time.monotonic() < ended
    ]
    for name, answer, hold, spent, memory in sorted(rows, key=lambda row: -row[2])[:most]:
        print(f"{hold:8.1f} {spent:8.1f} {memory:6.0f}  {answer:<24} {name}", flush=True)
    print(f"{len(rows)} bodies")


def in_a_process(body: Body) -> Row:
    """Made in one process and played in another, whose memory it has not stretched."""
    with tempfile.NamedTemporaryFile() as file:
        _told(_make, body, file.name)
        return _told(_play, file.name) or ("died, or took too long", math.inf, math.inf, math.inf)


def _told(work: Callable[..., Row | None], *args: object) -> Row | None:
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=lambda: theirs.send(work(*args)), daemon=True
    )
    child.start()
    theirs.close()
    try:
        told: Row | None = ours.recv() if ours.poll(AT_MOST_S) else None
    except EOFError:
        told = None
    child.kill()
    child.join()
    return told


def _make(body: Body, path: str) -> None:
    Path(path).write_bytes(body.make())


def _play(path: str) -> Row:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    return asyncio.run(_played(Path(path).read_bytes()))


async def _played(data: bytes) -> Row:
    async with served.served() as s:
        parts = [data[n : n + PIECE] for n in range(0, len(data), PIECE)]
        before = peak_mib(reset=True)
        async with watched() as hold:
            call = await s.client.send("POST", "/v1/responses", parts)
        memory = peak_mib() - before
        answer = str(call.status) + ("" if call.status == 200 else f" {call.error['code']}")
        return answer, hold.longest_s * 1e3, hold.spent_s * 1e3, memory


def peak_mib(*, reset: bool = False) -> float:
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
