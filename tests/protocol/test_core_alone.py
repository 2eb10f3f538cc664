"""A server of the core alone: its admission, and what it refuses to start with."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.asgi import Client, living, until
from tests.support.served import ANSWER, SETTINGS, STALLED, Served, script
from trt_responses.app import create_app
from trt_responses.engines.scripted.engine import ScriptedEngine, StepClock
from trt_responses.errors import StartupError
from trt_responses.settings import Settings
from trt_responses.setup import installed


@pytest.fixture(autouse=True)
def _core_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "FOLDERS", ())


def test_keys_that_nothing_checks_stop_the_start() -> None:
    engine = ScriptedEngine(lambda *_: script(ANSWER), clock=StepClock.free())
    with pytest.raises(StartupError, match="nothing is installed that checks them"):
        create_app(Settings(**SETTINGS, api_keys="ann:key-a"), engine=engine)


def test_who_finds_no_place_is_told_to_come_again_and_a_place_is_given_back_once() -> None:
    async def story() -> None:
        scripts = iter((STALLED, script(ANSWER)))
        engine = ScriptedEngine(lambda *_: next(scripts), clock=StepClock.free(), max_batch=1)
        app = create_app(Settings(**SETTINGS), engine=engine)
        async with living(app):
            s = Served(Client(app, lambda: engine.clock.steps), engine, app)
            held = s.client.ask(input="x", stream=True)
            await until(lambda: bool(engine.requests))
            busy = await s.client.create(input="y")
            assert (busy.status, busy.error["code"]) == (503, "server_busy")
            held.hang_up()
            await held.done()
            assert (await s.client.create(input="y")).status == 200
            assert app.state.server.admission.running == 0

    asyncio.run(story())
