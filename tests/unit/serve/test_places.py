"""The engine's places, counted over several front ends."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from tests.support.asgi import Client, living, until
from tests.support.served import SETTINGS, STALLED
from tests.support.ticks import settled
from trt_responses.app import create_app
from trt_responses.engine.scripted.engine import ScriptedEngine
from trt_responses.serve.places import SharedPlaces, make_places
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


def test_each_front_end_reads_what_all_of_them_make(tmp_path: Path) -> None:
    make_places(tmp_path / "places", 3)
    one, other, third = (SharedPlaces(tmp_path / "places", number) for number in range(3))
    assert [one(5), other(7), third(0), one(6)] == [0, 5, 12, 7]


def test_three_places_are_three_over_two_front_ends(tmp_path: Path) -> None:
    make_places(tmp_path / "places", 2)

    async def run() -> None:
        engines = [ScriptedEngine([STALLED]) for _ in range(2)]
        async with AsyncExitStack() as stack:
            clients = []
            for number, engine in enumerate(engines):
                elsewhere = SharedPlaces(tmp_path / "places", number)
                settings = Settings(**SETTINGS, max_running=3)
                app = create_app(settings, engine=engine, elsewhere=elsewhere)
                await stack.enter_async_context(living(app))
                clients.append(Client(app, lambda: 0))
            here, there = clients
            running = [client.ask(stream=True) for client in (here, here, there)]
            await until(lambda: [len(engine.requests) for engine in engines] == [2, 1])
            waiting = there.ask(stream=True)
            await waiting.until(lambda c: bool(c.heard))
            await settled(40)
            assert len(engines[1].requests) == 1
            running[0].hang_up()
            await until(lambda: len(engines[1].requests) == 2)
            for call in (*running, waiting):
                call.hang_up()
                await call.done()

    asyncio.run(run())
