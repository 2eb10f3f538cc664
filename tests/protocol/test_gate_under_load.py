"""The gate while clients saturate the served version: both versions are timed beside equal work.

Two engines on one clock of the test's own, which jumps from step to step. A step takes longer the
more tokens are held, as on a real engine, so that what stands beside a prompt decides how long its
tokens take.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import until
from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
from tests.support.served import SETTINGS, script
from tests.support.versions import TestBuilds, version
from trt_responses.features.rollout.gate import Gate, accepted_prompts
from trt_responses.features.rollout.leases import made_by
from trt_responses.features.rollout.loaded import Loaded
from trt_responses.features.rollout.versions import Versions
from trt_responses.run.request import RunRequest
from trt_responses.settings import Settings
from trt_responses.setup.engine import Given, served_engine
from trt_responses.setup.installed import install_all
from trt_responses.setup.server import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from trt_responses.engine import Engine, GenerateOptions
    from trt_responses.features.rollout.measures import GateReport

PLACES = 6
CLIENTS = 10
STEP_S, TOKEN_S = 0.001, 1e-6
"""What a step of the served version takes, and how much more for each token that it holds."""
CONVERSATION = {"model": "demo", "input": "on and on, " * 700, "store": False}
PROMPTS = [{"input": "Hello!"}, {"input": "Count to twelve."}, {"input": "Who are you?"}]
SHORT = script("<|channel|>final<|message|>one two three four five six seven<|return|>")
LONG = script(f"<|channel|>final<|message|>{'and so on, ' * 20}<|return|>")


def answer(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    return LONG if len(prompt_ids) > 1000 else SHORT


@dataclass
class Paced:
    """An engine whose steps take `factor` times as long."""

    factor: float = 1.0
    next_s: float = 0.0

    def __post_init__(self) -> None:
        clock = StepClock.manual(settle_turns=30)
        self.engine = ScriptedEngine(answer, clock=clock, max_batch=PLACES)

    async def step(self) -> None:
        await self.engine.clock.step()
        limits, use = self.engine.limits(), self.engine.health().cache_use or 0.0
        held = use * limits.context_tokens * limits.max_batch
        self.next_s += self.factor * (STEP_S + TOKEN_S * held)


class Clock:
    """The time of the engine whose turn is next."""

    def __init__(self, *engines: Paced) -> None:
        self._engines = engines
        self.now_s = 0.0

    def now_ns(self) -> int:
        return round(self.now_s * 1e9)

    async def sleep(self, seconds: float) -> None:
        over_s = self.now_s + seconds
        await until(lambda: self.now_s >= over_s)

    async def run(self) -> None:
        while True:
            engine = min(self._engines, key=lambda each: each.next_s)
            self.now_s = engine.next_s
            await engine.step()


async def client(server: Server) -> None:
    (asked,) = accepted_prompts([CONVERSATION])
    while True:
        run = await server.runs.start(RunRequest(asked, "ann", 0))
        await server.runs.make(run)


@asynccontextmanager
async def saturated(engine: Engine, clock: Clock, clients: int) -> AsyncIterator[Server]:
    """A server whose engine always has as many long conversations as it has places for."""
    loaded = Loaded(version(1), engine)
    settings = Settings(**SETTINGS)
    given = Given(loaded, TestBuilds())
    served = served_engine(settings, given, lambda *_: engine)
    server = Server(settings, served, None, [], clock.sleep)
    install_all(server)
    server.build()
    await server.store.start()
    await server.parts.engine.start()
    server.lifecycle.start()
    server.lifecycle.ready()
    tasks = [asyncio.create_task(client(server)) for _ in range(clients)]
    tasks.append(asyncio.create_task(clock.run()))
    try:
        await until(lambda: server.parts.admission.running == min(clients, PLACES))
        yield server
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.store.stop()


async def compared(factor: float, clients: int) -> GateReport:
    old, new = Paced(), Paced(factor)
    clock = Clock(old, new)
    async with saturated(old.engine, clock, clients) as server:
        parts = replace(server.parts, clock_ns=clock.now_ns)
        gate = Gate(parts, accepted_prompts(PROMPTS), partial(made_by, server.runs), clock.sleep)
        other = Loaded(version(2), new.engine)
        await other.start()
        report = await gate.compare(server.of(Versions).promoted, other)
        assert not new.engine.health().cache_use  # no copy is left on it
        return report


@pytest.mark.parametrize("clients", [0, CLIENTS], ids=["idle", "saturated"])
def test_a_version_three_times_slower_is_refused(clients: int) -> None:
    report = asyncio.run(compared(3, clients))
    assert report.refused is not None
    assert "times" in report.refused
    assert report.speed_ratio == pytest.approx(1 / 3, rel=0.2)


@pytest.mark.parametrize("clients", [0, CLIENTS], ids=["idle", "saturated"])
def test_one_that_is_equal_passes(clients: int) -> None:
    report = asyncio.run(compared(1, clients))
    assert report.refused is None
    assert report.speed_ratio == pytest.approx(1, rel=0.2)
