"""Few requests start in one turn of the loop, in the order in which they came."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.story import story
from tests.support.turns import turn as another_turn
from trt_responses.features.connections.turns import AT_ONCE, Turns

NOTHING: Any = None


def _run(turns: Turns, app: Any, number: int) -> Any:
    scope: Any = {"number": number}
    return turns.app(app)(scope, NOTHING, NOTHING)


@story
async def test_a_burst_starts_a_few_at_a_time_and_in_order() -> None:
    turns, turn, started = Turns(), 0, list[tuple[int, int]]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        started.append((turn, scope["number"]))

    count = 3 * AT_ONCE + 1
    tasks = [asyncio.ensure_future(_run(turns, app, n)) for n in range(count)]
    while len(started) < count:
        await another_turn()
        turn += 1
    await asyncio.gather(*tasks)
    assert [number for _, number in started] == list(range(count))
    in_turns = [at for at, _ in started]
    assert max(map(in_turns.count, in_turns)) <= AT_ONCE
    assert in_turns[-1] > in_turns[0] + 2


@story
async def test_one_that_has_left_meanwhile_takes_nobodys_turn() -> None:
    turns, started = Turns(), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        started.append(scope["number"])

    tasks = [asyncio.ensure_future(_run(turns, app, n)) for n in range(AT_ONCE + 2)]
    tasks[AT_ONCE].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert started == [*range(AT_ONCE), AT_ONCE + 1]
    assert turns.app(app) is app
