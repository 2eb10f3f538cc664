"""Owners take turns at compiling: one owner's line never stands before another's."""

from __future__ import annotations

import asyncio

from tests.support.turns import turn
from trt_responses.schema.turns import Turns


def test_an_owner_who_comes_late_goes_before_another_owners_line() -> None:
    async def story() -> None:
        turns, done, gate = Turns(), list[str](), asyncio.Event()

        async def one(owner: str) -> None:
            async with turns.of(owner):
                await gate.wait()
                done.append(owner)

        heavy = [asyncio.create_task(one("heavy")) for _ in range(40)]
        await turn()
        light = asyncio.create_task(one("light"))
        await turn()
        gate.set()
        await asyncio.gather(light, *heavy)
        assert "light" in done[:2]
        assert len(done) == 41

    asyncio.run(story())


def test_whoever_gives_up_waiting_leaves_no_hole() -> None:
    async def story() -> None:
        turns, gate = Turns(), asyncio.Event()

        async def one(owner: str) -> str:
            async with turns.of(owner):
                await gate.wait()
            return owner

        tasks = [asyncio.create_task(one(name)) for name in ("a", "a", "a", "b", "b", "c")]
        await turn()
        for cancelled in (tasks[1], tasks[4]):
            cancelled.cancel()
        gate.set()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        names = [name for name in ended if isinstance(name, str)]
        assert names == ["a", "a", "b", "c"]
        async with asyncio.timeout(60), turns.of("a"), turns.of("b"):
            pass

    asyncio.run(story())
