"""Let an engine of TensorRT-LLM die in each way, with a real one's bounds; print what was seen.

`--grpc` does it with servers over gRPC instead, which restart when all streams have ended.
The package is a stand-in and its ranks are small processes, so a model's load comes on top of what
stands under "ready". Ends with status 1 when a bound does not hold.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from tests.support.deaths import DEATHS, STREAMS, Death, Seen, failed_start, seen, stopped
from tests.support.grpc_deaths import failed_start_over_grpc, seen_over_grpc

LIVE_S = 1.0
"""So long may `/health/live` take at every moment."""
STOP_S = 5.0
START_S = 5.0
AT_ONCE = 3
HEADING = f"{'ended':>7} {'ready':>7} {'live':>6} {'lost':>5}  death"


async def deaths() -> bool:
    """One table; whether each bound held."""
    print(f"{STREAMS} streams each; seconds, and streams lost\n{HEADING}", flush=True)
    places = asyncio.Semaphore(AT_ONCE)

    async def row(death: Death) -> bool:
        async with places:
            found = await seen(death)
        print(line(death, found), flush=True)
        in_time = found.told_s <= death.told_s and found.live_s <= LIVE_S
        return in_time and not found.rank_is_left

    held = await asyncio.gather(*map(row, DEATHS))
    for number in (signal.SIGKILL, signal.SIGSTOP):
        seconds, _ = await stopped(number, STOP_S)
        print(alone(seconds, STREAMS, f"a stop within {STOP_S:g} s, {number.name} of a rank"))
        held.append(seconds <= STOP_S + 1)
    for error in ("KeyError", None):
        seconds, why = await failed_start(error, START_S)
        print(alone(seconds, 0, f"a rank dies while it loads: {why}"))
    return all(held)


async def deaths_over_grpc() -> bool:
    """One table; whether each bound held."""
    print(f"{STREAMS} streams each; seconds, and streams lost\n{HEADING}")
    held = []
    for death in DEATHS:
        found = await seen_over_grpc(death)
        print(line(death, found), flush=True)
        held.append(found.told_s <= death.told_s and found.live_s <= LIVE_S)
    seconds, why = await failed_start_over_grpc(START_S)
    print(alone(seconds, 0, f"a rank dies while it loads: {why}"), flush=True)
    return all(held)


def alone(seconds: float, lost: int, name: str) -> str:
    return f"{seconds:7.1f} {'-':>7} {'-':>6} {lost:5}  {name}"


def line(death: Death, found: Seen) -> str:
    numbers = f"{found.told_s:7.1f} {found.ready_s:7.1f} {found.live_s:6.2f} {found.lost_streams:5}"
    return f"{numbers}  {death.name}: {' | '.join(sorted(found.reasons))}"


if __name__ == "__main__":
    measure = deaths_over_grpc if "--grpc" in sys.argv else deaths
    sys.exit(0 if asyncio.run(measure()) else 1)
