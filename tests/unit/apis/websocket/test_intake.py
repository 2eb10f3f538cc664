"""Turns in which the messages of WebSockets are read."""

from __future__ import annotations

import asyncio
import time

from tests.support.turns import turn
from trt_responses.apis.websocket.intake import Intake, OwnerTurns


def test_one_message_is_read_at_a_time_and_each_owner_comes_in_its_turn() -> None:
    async def story() -> None:
        intake = Intake()
        order: list[str] = []
        inside: set[str] = set()

        async def read(turns: OwnerTurns, name: str) -> None:
            async with turns.turn():
                assert not inside
                inside.add(name)
                await turn(5)
                inside.remove(name)
                order.append(name)

        ann, bob = intake.of("ann"), intake.of("bob")
        many = [asyncio.create_task(read(ann, "ann")) for _ in range(20)]
        await asyncio.gather(*many, asyncio.create_task(read(bob, "bob")))
        assert order.index("bob") <= 2

    asyncio.run(story())


def test_an_owner_rests_for_a_multiple_of_what_its_last_message_took_and_others_do_not() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        intake = Intake()
        ann = intake.of("ann")
        assert intake.of("ann") is ann, "all its connections rest together"
        async with ann.turn():
            began_s = time.thread_time()
            while time.thread_time() < began_s + 0.01:
                pass
        rested_s = loop.time()
        async with intake.of("bob").turn():
            pass
        bob_s = loop.time() - rested_s
        async with ann.turn():
            assert loop.time() - rested_s > 0.02
        assert bob_s < loop.time() - rested_s

    asyncio.run(story())


def test_a_message_that_is_refused_ends_its_turn() -> None:
    async def story() -> None:
        turns = Intake().of("ann")
        for _ in range(2):
            try:
                async with turns.turn():
                    raise ValueError
            except ValueError:
                pass

    asyncio.run(story())
