"""Play hostile bodies against the served app; print what each costs everyone else, and fail for one
that costs too much.

For each body: the answer, the longest time that it held the event loop, the CPU time and the memory
that it took beside itself. Each is played in a process of its own, which is ended after a while.
Times are of the processor, divided by how much longer a fixed piece of work takes at the moment
than on a quiet machine: busy neighbours fail no body.
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
from tests.support.bodies import Body, in_containers, reported, schemas, stretched
from tests.support.boxed import no_box
from tests.support.hold import slowness, watched
from tests.support.played import hosted, stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Row = tuple[int, str, float, float, float]

MOST_MS = 50.0
"""Of the event loop, for any body."""
MOST_REFUSED_MS = 20.0
"""Of the event loop, for a body that is refused before all of it is read."""
MOST_REFUSED_MIB = 64.0
TRIES = 3
"""The least hold of so many counts: what else runs on the machine lengthens one."""
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
    hello = Body("hello", lambda: b'{"model":"demo","input":"Hello"}')
    asyncio.run(_played(hello, hello.make()))  # what is made once is made
    print(f"{'hold ms':>8} {'CPU ms':>8} {'MiB':>6}  answer")
    ended = time.monotonic() + chosen.seconds
    faults = show(reported(), chosen.only, sys.maxsize, ended)
    print()
    faults += show(schemas(), chosen.only, sys.maxsize, ended)
    print()
    most = sys.maxsize if chosen.all else WORST
    faults += show(stretched(), chosen.only, most, ended)
    if why := no_box():
        print(f"\nno containers: {why}")
    else:
        print()
        faults += show(in_containers(), chosen.only, most, ended)
    if faults:
        raise SystemExit("\n".join(["Too much:", *faults]))


def show(bodies: Iterable[Body], only: str, most: int, ended: float) -> list[str]:
    """Prints the worst, and returns those that cost too much."""
    rows = [
        (body, *in_a_process(body))
        for body in bodies
        if only in body.name and time.monotonic() < ended
    ]
    rows.sort(key=lambda row: -row[3])
    for body, _, answer, hold, spent, memory in rows[:most]:
        print(f"{hold:8.1f} {spent:8.1f} {memory:6.0f}  {answer:<24} {body.name}", flush=True)
    print(f"{len(rows)} bodies")
    return [
        f"{body.name}: {hold:.1f} ms, {memory:.0f} MiB"
        for body, status, _, hold, _, memory in rows
        if too_much(body, status, hold, memory)
    ]


def too_much(body: Body, status: int, hold_ms: float, memory_mib: float) -> bool:
    if status in (200, 500):  # the scripted engine follows no guide
        return hold_ms > MOST_MS
    most_ms = MOST_MS if body.wrong_at_its_end else MOST_REFUSED_MS
    return hold_ms > most_ms or memory_mib > MOST_REFUSED_MIB


def in_a_process(body: Body) -> Row:
    """Made in one process and played in another, whose memory it has not stretched."""
    with tempfile.NamedTemporaryFile() as file:
        _result_of(_make, body, file.name)
        lost = (0, "died, or took too long", math.inf, math.inf, math.inf)
        best = lost
        for _ in range(TRIES):
            best = min(best, _result_of(_play, file.name, body) or lost, key=lambda row: row[2])
            if not too_much(body, best[0], best[2], best[4]):
                break
        return best


def _result_of(work: Callable[..., Row | None], *args: object) -> Row | None:
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=lambda: theirs.send(work(*args)), daemon=True
    )
    child.start()
    theirs.close()
    try:
        result: Row | None = ours.recv() if ours.poll(AT_MOST_S) else None
    except EOFError:
        result = None
    child.kill()
    child.join()
    return result


def _make(body: Body, path: str) -> None:
    Path(path).write_bytes(body.make())


def _play(file: str, body: Body) -> Row:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    return asyncio.run(_played(body, Path(file).read_bytes()))


async def _played(body: Body, data: bytes) -> Row:
    async with hosted() as s, stage(s, body) as play:
        before = peak_mib(reset=True)
        async with watched() as hold:
            reply = await play(data)
        memory = peak_mib() - before
        scale = 1e3 / slowness()
        answer = f"{reply.status} {reply.code}".strip()
        return reply.status, answer, hold.longest_s * scale, hold.spent_s * scale, memory


def peak_mib(*, reset: bool = False) -> float:
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
