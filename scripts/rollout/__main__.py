"""Replace servers and versions under load behind a real proxy, and say what clients noticed.

Two servers of the demo on one Redis (or `ROLLOUT_STORE`) behind HAProxy and Envoy in turn, with
active health checks and no retries of their own; 50 conversations of six turns and more by the
`openai` client at its default retries: plain, streamed, in the background and tool loops, half of
them over `conversation`. Each server is replaced twice by SIGTERM and once by SIGKILL. Then, behind
HAProxy, versions of the engine are promoted, rolled back, tried out and refused (`versions.py`).
The status is 1 when a bound of `report.py` was passed, or a turn was lost or doubled.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scripts.rollout import report, versions
from scripts.rollout.fleet import fleet, missing
from scripts.rollout.load import Tally, Users, client_of

if TYPE_CHECKING:
    from scripts.rollout.fleet import Fleet, ProxyName

SETTLED_S = 4.0
"""The proxies look at each server twice a second, and conversations go on."""
ORDER = [
    *((name, signal.SIGTERM) for name in "ABAB"),
    *((name, signal.SIGKILL) for name in "AB"),
]
SCENARIOS: tuple[ProxyName | str, ...] = ("haproxy", "envoy", "versions")


class End(NamedTuple):
    """How a server's life ended."""

    seconds: float
    status: int


async def servers_replaced(
    proxy: ProxyName, conversations: int, users_at_once: int, folder: Path
) -> list[str]:
    """Print what was noticed; every bound that was passed."""
    tally = Tally()
    async with fleet(proxy, folder, {}) as servers, client_of(servers.url, tally) as client:
        users = Users(client, tally, users_at_once, conversations)
        async with users.talking():
            ends = await replaced(servers, tally)
        lost, doubled = await users.judged()
        resumed = servers.resumed
    rows = {phase: (f"{end.seconds:.1f}", str(end.status)) for phase, end in ends.items()}
    title = f"{proxy}: two servers, each replaced three times, {len(users.held)} conversations"
    report.show(title, tally, ("end s", "status"), rows)
    print(f"turns lost {lost}, turns doubled {doubled}")
    print(f"background responses that another server resumed: {resumed}")
    found = report.breaches(tally, [phase for phase in ends if "SIGKILL" in phase])
    found += [
        f"{phase}: status {end.status}"
        for phase, end in ends.items()
        if end.status and "SIGTERM" in phase
    ]
    if lost or doubled:
        found.append(f"turns lost {lost}, turns doubled {doubled}")
    if not resumed:
        found.append("no server was killed while it made a background response: nothing is shown")
    return found


async def replaced(servers: Fleet, tally: Tally) -> dict[str, End]:
    """The end of each server, by its phase."""
    ends = {}
    await asyncio.sleep(SETTLED_S)
    for number, (name, sent) in enumerate(ORDER, 1):
        tally.phase = f"{number} {sent.name} {name}"
        server = servers.servers["AB".index(name)]
        took = await server.replace(sent)
        ends[tally.phase] = End(took, server.ends[-1])
        await asyncio.sleep(SETTLED_S)
    return ends


def main() -> int:
    parser = argparse.ArgumentParser(prog="make rollout", description=__doc__)
    parser.add_argument("--conversations", type=int, default=50, help="at least")
    parser.add_argument("--users", type=int, default=16, help="who hold them at once")
    parser.add_argument("--only", choices=SCENARIOS, help="one of them alone")
    parser.add_argument("--verbose", action="store_true", help="say each fault a client had")
    chosen = parser.parse_args()
    logging.basicConfig(level="WARNING", format="%(message)s")
    logging.getLogger("rollout").setLevel("INFO" if chosen.verbose else "WARNING")
    found: list[str] = []
    for name in SCENARIOS:
        if chosen.only in (None, name):
            found += passed(name, chosen.conversations, chosen.users)
    for breach in found:
        print(f"BREACH {breach}", file=sys.stderr)
    return 1 if found else 0


def passed(name: str, conversations: int, users: int) -> list[str]:
    """The bounds that a scenario passed. Versions are exchanged under all conversations at once."""
    proxy: ProxyName = "envoy" if name == "envoy" else "haproxy"
    if (lacks := missing(proxy)) is not None:
        return [f"{name}: not run, for {lacks} is not installed"]
    with tempfile.TemporaryDirectory() as folder:
        if name == "versions":
            scenario = versions.exchanged(conversations, Path(folder))
        else:
            scenario = servers_replaced(proxy, conversations, users, Path(folder))
        found: list[str] = []
        try:
            found += asyncio.run(scenario)
        except* RuntimeError as broken:  # a server that did not start, perhaps of many tasks
            found += map(str, broken.exceptions)
    return [f"{name}: {breach}" for breach in found]


if __name__ == "__main__":
    sys.exit(main())
