"""A version put into the place of the served one, under its runs, where memory does not hold both.

Over scripted engines and builds without files; `tests/e2e/test_exchange_in_place.py` does it with
the embedded engine.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.asgi import until
from tests.support.greedy import WHOLE, Model, texts
from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
from tests.support.served import ANSWER, ids
from tests.support.steering import GUIDES
from tests.support.versions import ADMIN, Faulty, exchanged, scripted
from trt_responses.errors import StartupError
from trt_responses.features.rollout.exchange import Exchange

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from tests.support.asgi import Call
    from tests.support.versions import Exchanged
    from trt_responses.engine import GenerateOptions

GIVEN = 5
"""Tokens that a response has when the engine is exchanged."""
ANSWERS = ["Hello 😀 there, friend of mine."]
LAME = ANSWER.replace("<|return|>", "<|end|>Stray.<|return|>")
SCHEMA = {
    "format": {
        "type": "json_schema",
        "name": "verdict",
        "schema": {
            "type": "object",
            "properties": {"ok": {"type": "boolean"}},
            "required": ["ok"],
            "additionalProperties": False,
        },
    }
}


def model(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    """The same answer however often it is asked to go on, and JSON where a schema is asked for."""
    if options.guide is not None:
        return Script(tuple((i,) for i in ids('{"ok":true}<|endoftext|>')))
    if options.stop_ids == () or options.banned_ids:
        return Script(tuple((i,) for i in ids("Hm.<|end|>")))
    return Model()(prompt_ids, options)


def engine(*, manual: bool = False) -> ScriptedEngine:
    clock = StepClock.manual(settle_turns=40) if manual else StepClock.free()
    return ScriptedEngine(model, clock=clock, guides=GUIDES)


class Unwilling(Faulty):
    """An engine that does not start."""

    async def start(self) -> None:
        raise StartupError("Its weights do not fit.")


class Waits(Faulty):
    """An engine whose start takes until it is let."""

    def __init__(self) -> None:
        super().__init__(engine())
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def start(self) -> None:
        self.asked.set()
        await self.let.wait()
        await super().start()


@asynccontextmanager
async def narrow(
    tmp_path: Path, *builds: Callable[[], Any], **settings: object
) -> AsyncIterator[Exchanged]:
    """A server whose memory holds one version at a time, with an engine that makes a step when a
    test says so."""
    async with exchanged(tmp_path, *builds, first=engine(manual=True), **settings) as s:
        s.builds.builds["1"].engine = engine
        for build in s.builds.builds.values():
            build.narrow = "memory: 2.00 GiB are needed and 1.00 GiB are free"
        yield s


async def begun(s: Exchanged, **fields: Any) -> Call:
    before = len(s.engine.requests)
    call = s.client.ask(stream=True, **fields)
    await until(lambda: len(s.engine.requests) > before)
    return call


def test_free_runs_wait_and_go_on_with_the_new_engine_and_guided_ones_fail(tmp_path: Path) -> None:
    async def story() -> None:
        second = Waits()
        async with narrow(tmp_path, lambda: second) as s:
            free = await begun(s)
            guided = await begun(s, text=SCHEMA)
            while not (s.engine.requests[-1].options.guide and s.engine.requests[-1].steps_made):
                await s.clock.step()
            loading = asyncio.create_task(s.load(version=2, gate=False, reason="at noon"))
            await second.asked.wait()
            assert s.first.stopped, "the one is stopped before the other is started"
            refused = await s.client.create()
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
            assert "demo@2 is loaded in the place of demo@1" in refused.error["message"]
            report = s.health()
            assert (report.live, report.ready, report.running) == (True, False, 1)
            second.let.set()
            told = (await loading).json()
            assert (told["state"], told["before"], told["version"]) == (
                "promoted",
                "demo@1",
                "demo@2",
            )
            assert (told["paused"], told["gate"]) == (2, None)
            whole = await free.done()
            assert texts(whole.events[-1]["response"]) == ["They greet me: say 😀 back.", *ANSWERS]
            numbers = [event["sequence_number"] for event in whole.events]
            assert numbers == list(range(len(numbers)))
            error, failed = (await guided.done()).events[-2:]
            assert (error["code"], failed["response"]["status"]) == ("engine_lost", "failed")
            assert "was exchanged while a text was written under a schema" in error["message"]
            assert await s.version() == s.builds.promoted == "demo@2"
            shown = (await s.client.send("GET", "/admin/engines/demo", headers=ADMIN)).json()
            assert (shown["promoted"]["version"], shown["finishing"]) == ("demo@2", [])
            assert [act for act, _, _ in s.builds.journal] == ["promoted", "loaded"]
            metrics = (await s.client.get("/metrics")).body.decode()
            assert 'trt_responses_pauses_total{engine="exchanged"} 2' in metrics

    asyncio.run(story())


def test_a_response_is_explained_by_the_version_that_made_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with narrow(tmp_path, engine) as s:
            await s.load(version=2, gate=False)
            made = (await s.client.create()).json()["id"]
            await s.load(version=1, gate=False)
            assert await s.version() == "demo@1"
            assert await s.explained(made) == "demo@2"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (lambda: Unwilling(engine()), "demo@2 is not served: Its weights do not fit."),
        (lambda: scripted(LAME), "repairs of malformed output"),
        (engine, "the disk is full"),
    ],
    ids=["it does not start", "it is worse", "the pointer cannot be moved"],
)
def test_whatever_fails_the_one_before_comes_back_and_the_runs_go_on(
    tmp_path: Path, new: Callable[[], Any], why: str
) -> None:
    async def story() -> None:
        async with narrow(tmp_path, new) as s:
            s.builds.broken = why if "disk" in why else None
            loading = asyncio.create_task(s.load(version=2))
            free: list[Call] = []
            while not loading.done():  # what the gate records of the one before takes steps, too
                asking = "asking" in (s.app.state.server.of(Exchange).phase or "")
                if asking and (not free or free[-1].ended):
                    free.append(s.client.ask(stream=True))
                await s.clock.step()
            told = await loading
            assert (told.status, told.error["code"]) == (409, "version_refused"), told.body
            assert why in told.error["message"]
            for call in free:
                assert texts((await call.done()).events[-1]["response"])[-1:] == ANSWERS
            metrics = (await s.client.get("/metrics")).body.decode()
            assert 'trt_responses_pauses_total{engine="exchanged"} 1' in metrics
            assert await s.version() == s.builds.promoted == "demo@1"
            assert [(act, label) for act, label, _ in s.builds.journal] == [("refused", "demo@2")]
            assert s.health().ready

    asyncio.run(story())


def test_when_neither_starts_the_server_has_failed_and_so_have_its_runs(tmp_path: Path) -> None:
    async def story() -> None:
        async with narrow(tmp_path, lambda: Unwilling(engine())) as s:
            s.builds.builds["1"].engine = lambda: Unwilling(engine())
            free = await begun(s)
            await s.clock.step(GIVEN)
            told = await s.load(version=2, gate=False)
            assert told.status == 409
            assert "demo@1 could not be started again" in told.error["message"]
            error = (await free.done()).events[-2]
            assert (error["code"], "could not be started again" in error["message"]) == (
                "engine_lost",
                True,
            )
            assert (s.health().state, s.health().live) == ("failed", False)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("asked", "settings", "why"),
    [
        ({"canary": 0.5}, {}, "a canary is served beside"),
        ({"pause": False}, {}, "was not to be paused"),
        ({}, {"engine_pause_s": 0}, "lets no response wait"),
        ({}, {}, "memory: not alone, either"),
    ],
    ids=["a canary", "as asked", "without pauses", "in no case"],
)
def test_what_cannot_be_exchanged_in_place_is_refused_before_anything_stops(
    tmp_path: Path, asked: dict[str, Any], settings: dict[str, Any], why: str
) -> None:
    async def story() -> None:
        async with narrow(tmp_path, engine, **settings) as s:
            s.builds.builds["2"].alone = why if "alone" in why else None
            told = await s.load(version=2, gate=False, **asked)
            assert (told.status, why in told.error["message"]) == (409, True), told.body
            assert not s.first.stopped
            assert s.health().ready

    asyncio.run(story())


def test_a_server_that_ends_in_between_leaves_no_engine_behind(tmp_path: Path) -> None:
    async def story() -> None:
        second = Waits()
        async with narrow(tmp_path, lambda: second) as s:
            free = await begun(s)
            await s.clock.step(GIVEN)
            loading = asyncio.create_task(s.load(version=2, gate=False))
            await second.asked.wait()
        await asyncio.gather(loading, return_exceptions=True)
        assert (await free.done()).events[-1]["response"]["status"] == "failed"
        assert second.stopped
        assert s.builds.promoted == "demo@1"

    asyncio.run(story())


def test_a_run_that_asks_while_no_engine_is_there_waits_like_the_others(tmp_path: Path) -> None:
    async def story() -> None:
        second = Waits()
        async with narrow(tmp_path, lambda: second, max_running=1) as s:
            first = await begun(s)
            waiting = s.client.ask(stream=True)
            await until(lambda: s.health().waiting == 1)
            await s.clock.step(len(WHOLE) - 1)
            loading = asyncio.create_task(s.load(version=2, gate=False))
            await second.asked.wait()
            second.let.set()
            assert (await loading).status == 200
            for call in (first, waiting):
                assert (await call.done()).events[-1]["response"]["status"] == "completed"

    asyncio.run(story())
