"""What looks at the engine while a server lives."""

from __future__ import annotations

import asyncio

from tests.support.served import served
from tests.support.turns import turn


def test_whoever_looks_at_the_engine_does_so_again_and_again() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await turn()

    async def story() -> None:
        looked = 0

        def look() -> None:
            nonlocal looked
            looked += 1

        async with served(stall_s=2, sleep=sleep) as s:
            server = s.app.state.server
            assert server.admission.look in server.each_look, "places that come back are given out"
            server.each_look.append(look)
            while looked < 2:
                await turn()
        assert 0.5 in waits

    asyncio.run(story())
