"""The memory of one front end while 1,000 streams at once are made and stored, again and again:
`python -m bench.servers.memory [memory|sqlite [WAVES]]`.

No two responses are alike. The store in memory holds all of them, up to its limit.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.servers.measure import Field, run_load
from bench.servers.plays import SATURATED
from bench.servers.start import RESPONSES, Contender, ours
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAMS, WAVES = 1000, 15


def waves(store: str, count: int) -> Iterator[float]:
    """MB of the front end before the first wave, and after each."""
    servers = Field(vocabularies.load())
    contender = Contender("this server", ours(1, unlike=True, sqlite=store == "sqlite"), RESPONSES)
    try:
        server = servers.server(contender)
        yield resident_mb(server.pids[0])
        for _ in range(count):
            run_load(contender, server, servers.plays[SATURATED], STREAMS, SATURATED)
            yield resident_mb(server.pids[0])
    finally:
        servers.close()


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def main(store: str = "memory", count: str = str(WAVES)) -> None:
    seen = []
    for number, megabytes in enumerate(waves(store, int(count))):
        print(f"{number * STREAMS:,} responses: {megabytes:.0f} MB", flush=True)
        seen.append(megabytes)
    middle = len(seen) // 2
    grown = 1e6 * (seen[-1] - seen[middle]) / STREAMS / (len(seen) - 1 - middle) / 1024
    print(f"{grown:.2f} KiB more for each response of the second half")


if __name__ == "__main__":
    main(*sys.argv[1:])
