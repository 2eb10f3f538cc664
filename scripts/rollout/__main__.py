"""Replace two servers behind a real proxy while clients talk to them, and say what they noticed.

Envoy and HAProxy in turn, with active health checks and no retries of their own; two servers of the
demo on one Redis; conversations of six turns by the `openai` client: plain, streamed, in the
background and tool loops. Each server is replaced twice by SIGTERM and once by SIGKILL. The status
is 1 when a replacement by SIGTERM was noticed, or when any turn was lost or doubled.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from scripts.rollout.fleet import fleet, missing
from scripts.rollout.load import ConnectionFaults, Conversation, Tally, client_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from openai import AsyncOpenAI

    from scripts.rollout.fleet import Fleet, ProxyName

SETTINGS = {
    "TRT_RESPONSES_LOG_LEVEL": "warning",
    "TRT_RESPONSES_LEASE_S": "2",
    "TRT_RESPONSES_THREADS": "1",
}
USERS = 6
"""Who talk at once: two cores serve them, and both proxies."""
SETTLED_S = 2.0
"""The proxies look at each server twice a second."""
ORDER = [
    *((name, signal.SIGTERM) for name in "ABAB"),
    *((name, signal.SIGKILL) for name in "AB"),
]
COLUMNS = (
    "requests",
    "refused, tried again",
    "connection errors",
    "5xx of the proxy",
    "requests failed",
    "streams cut",
    "background lost",
    "turns asked again",
)
NOTICED = COLUMNS[2:]


async def rolled(
    proxy: ProxyName, conversations: int, folder: Path
) -> tuple[Tally, list[tuple[str, float, int]], tuple[int, int]]:
    """The tally of each phase, each server's end, and the turns lost and doubled."""
    tally = Tally()
    faults = ConnectionFaults(tally)
    openai_log = logging.getLogger("openai._base_client")
    openai_log.setLevel(logging.DEBUG)
    openai_log.addHandler(faults)
    openai_log.propagate = False
    try:
        async with (
            fleet(proxy, folder, SETTINGS) as servers,
            client_of(servers.url, tally) as client,
        ):
            held: list[Conversation] = []
            ends = await replaced_under(servers, client, held, conversations, tally)
            judged = [await conversation.judged() for conversation in held]
    finally:
        openai_log.removeHandler(faults)
    return tally, ends, (sum(lost for lost, _ in judged), sum(twice for _, twice in judged))


async def replaced_under(
    servers: Fleet,
    client: AsyncOpenAI,
    held: list[Conversation],
    at_least: int,
    tally: Tally,
) -> list[tuple[str, float, int]]:
    """Replace all servers while users hold one conversation after another, until the last server
    is replaced and there were as many as are wanted."""
    done = asyncio.Event()

    async def user() -> None:
        while not done.is_set() or len(held) < at_least:
            held.append(Conversation(len(held), client, tally))
            await held[-1].hold()

    ends = []
    async with asyncio.TaskGroup() as group:
        for _ in range(USERS):
            group.create_task(user())
        await asyncio.sleep(SETTLED_S)
        for number, (name, sent) in enumerate(ORDER, 1):
            tally.phase = f"{number} {sent.name} {name}"
            server = servers.servers["AB".index(name)]
            took = await server.replace(sent)
            await asyncio.sleep(SETTLED_S)
            ends.append((tally.phase, took, server.ends[-1]))
        tally.phase = "after"
        done.set()
    return ends


def show(
    proxy: str, tally: Tally, ends: Sequence[tuple[str, float, int]], kept: tuple[int, int]
) -> bool:
    """Print the table; whether all is as it should be."""
    table = Table(title=f"{proxy}: two servers, each replaced three times")
    table.add_column("phase")
    for column in (*COLUMNS, "end s", "status"):
        table.add_column(column, justify="right")
    told = {phase: (f"{took:.1f}", str(status)) for phase, took, status in ends}
    for phase, counts in tally.counts.items():
        cells = [str(counts[column]) for column in COLUMNS]
        table.add_row(phase, *cells, *told.get(phase, ("", "")))
    console = Console(width=140)
    console.print(table)
    lost, doubled = kept
    console.print(f"turns lost {lost}, turns doubled {doubled}")
    quiet = all(
        not counts[column]
        for phase, counts in tally.counts.items()
        if "SIGKILL" not in phase
        for column in NOTICED
    )
    clean = all(status == 0 for phase, _, status in ends if "SIGTERM" in phase)
    return quiet and clean and not lost and not doubled


def main() -> int:
    parser = argparse.ArgumentParser(prog="make rollout", description=__doc__)
    parser.add_argument("--conversations", type=int, default=50)
    parser.add_argument("--proxy", choices=("haproxy", "envoy"), help="one of them alone")
    parser.add_argument("--verbose", action="store_true", help="say each fault a client had")
    chosen = parser.parse_args()
    logging.basicConfig(level="WARNING", format="%(message)s")
    logging.getLogger("rollout").setLevel("INFO" if chosen.verbose else "WARNING")
    good = True
    proxies: tuple[ProxyName, ...] = ("haproxy", "envoy")
    for proxy in proxies:
        if chosen.proxy not in (None, proxy):
            continue
        if (lacks := missing(proxy)) is not None:
            print(f"{proxy}: not run, for {lacks} is not installed", file=sys.stderr)
            good = False
            continue
        with tempfile.TemporaryDirectory() as folder:
            results = asyncio.run(rolled(proxy, chosen.conversations, Path(folder)))
        good &= show(proxy, *results)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
