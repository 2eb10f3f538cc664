"""Versions over several front ends: what one decides all follow, whichever is asked.

Over scripted engines behind sockets, in one process; `tests/e2e/test_fleet_versions.py` does it
with processes.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from tests.support.asgi import until
from tests.support.fleet import fleet, two
from tests.support.greedy import texts
from tests.support.served import THOUGHT
from tests.support.turns import turn
from tests.support.versions import Faulty, scripted

if TYPE_CHECKING:
    from pathlib import Path


def test_all_front_ends_go_to_a_version_and_the_old_one_ends_its_own(tmp_path: Path) -> None:
    async def story() -> None:
        first = scripted(manual=True)
        async with fleet(tmp_path, lambda: first, scripted) as made, two(made) as (one, other):
            stream = one.client.ask(model="mine", stream=True)
            await until(lambda: len(first.requests) == 1)
            await first.clock.step(3)
            told = await other.act("load", version=2, gate=False)
            assert (told.status, told.json()["state"]) == (200, "promoted"), told.body
            assert await one.version() == await other.version() == "mine@2"
            shown = await one.state()
            assert shown == await other.state()
            assert shown["promoted"]["version"] == "mine@2"
            assert [(e["version"], e["runs"]) for e in shown["finishing"]] == [("mine@1", 1)]
            assert not made.processes[0].stopped.is_set()
            await first.clock.step(100)
            ended = await stream.done()
            assert ended.events[-1]["type"] == "response.completed"
            await made.processes[0].stopped.wait()
            while (await other.state())["finishing"]:
                await turn()

    asyncio.run(story())


def test_a_canary_has_the_same_conversations_on_all_front_ends_and_a_late_one_joins_in(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with fleet(tmp_path, scripted, scripted) as made, AsyncExitStack() as late:
            async with two(made) as (one, other):
                told = await one.act("load", version=2, canary=0.5)
                assert told.json()["state"] == "canary", told.body
                third = await late.enter_async_context(made.front_end(2))
                keys = [f"k{n}" for n in range(20)]
                split = [
                    [await front.version(prompt_cache_key=key) for key in keys]
                    for front in (one, other, third)
                ]
                assert split[0] == split[1] == split[2]
                assert set(split[0]) == {"mine@1", "mine@2"}
                assert (await other.act("load", version=2)).json()["state"] == "promoted"
                assert await third.version() == "mine@2"
                assert (await other.act("load", version=1, canary=0.9)).status == 200
                assert (await third.act("unload")).json()["version"] == "mine@1"
                assert (await one.act("unload")).status == 409
            assert await third.version() == "mine@2"
            back = await third.act("load", version=1, gate=False)
            assert back.json()["before"] == "mine@2"
            assert await third.version() == "mine@1"
            assert not made.killed

    asyncio.run(story())


def test_a_version_that_the_gate_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    async def story() -> None:
        other_words = lambda: scripted(THOUGHT)  # noqa: E731
        async with fleet(tmp_path, scripted, other_words) as made, two(made) as (one, other):
            told = await one.act("load", version=2, exact=True)
            assert (told.status, told.error["code"]) == (409, "version_refused"), told.body
            assert "not those of the promoted version" in told.json()["gate"]["refused"]
            await made.processes[1].stopped.wait()
            assert (await other.state())["last_load"]["state"] == "refused"
            assert await one.version() == await other.version() == "mine@1"
            unknown = await other.act("load", version=9)
            assert "no version 9" in unknown.error["message"]

    asyncio.run(story())


class Waiting(Faulty):
    """An engine whose answers wait until they are let."""

    def __init__(self) -> None:
        self.inner = scripted(manual=True)
        super().__init__(self.inner)

    @property
    def begun(self) -> bool:
        return bool(self.inner.requests)


def test_another_front_end_runs_the_gate_when_the_first_ends(tmp_path: Path) -> None:
    async def story() -> None:
        second = Waiting()
        async with fleet(tmp_path, scripted, lambda: second) as made, AsyncExitStack() as first:
            await first.enter_async_context(made.front_end(0))
            async with made.front_end(1) as other:
                loading = asyncio.create_task(other.act("load", version=2))
                await until(lambda: second.begun)
                busy = await other.act("load", version=2)
                assert "Another change is going on" in busy.error["message"]
                await first.aclose()
                while not loading.done():
                    await second.inner.clock.step()
                assert (await loading).json()["state"] == "promoted", (await loading).body
                assert (await other.state())["promoted"]["version"] == "mine@2"

    asyncio.run(story())


def test_a_version_whose_process_is_given_up_is_refused_or_unloaded(tmp_path: Path) -> None:
    async def story() -> None:
        second = Waiting()
        engines = (scripted, lambda: second, scripted)
        async with fleet(tmp_path, *engines) as made, two(made) as (one, other):
            loading = asyncio.create_task(one.act("load", version=2))
            await until(lambda: second.begun)
            await made.processes[1].give_up("out of memory")
            told = await loading
            assert (told.status, "mine@2 is not served" in told.error["message"]) == (409, True)
            assert (await one.act("load", version=3, canary=0.9)).status == 200
            await made.processes[2].give_up("out of memory")
            while (await other.state())["canary"] is not None:
                await turn()
            assert await one.version() == await other.version() == "mine@1"
            assert not made.faults
            await made.processes[0].give_up("out of memory")
            await until(lambda: bool(made.faults))
            assert made.faults == ["The engine is lost and the server has ended: out of memory"]

    asyncio.run(story())


NARROW = "memory: 2.00 GiB are needed and 1.00 GiB are free"


def test_where_memory_holds_one_the_runs_of_all_front_ends_wait_and_go_on(tmp_path: Path) -> None:
    async def story() -> None:
        first = scripted(THOUGHT, manual=True)
        again = lambda: scripted(THOUGHT)  # noqa: E731
        engines = iter((lambda: first, again))
        one_of = lambda: next(engines)()  # noqa: E731
        async with fleet(tmp_path, one_of, again, narrow=NARROW) as made, two(made) as fronts:
            calls = [front.client.ask(model="mine", stream=True) for front in fronts]
            await until(lambda: len(first.requests) == 2)
            await first.clock.step(5)
            made.versions.began(connecting := 7)
            told = (await fronts[0].act("load", version=2, gate=False)).json()
            assert (told["state"], told["paused"]) == ("promoted", 2), told
            assert made.killed == [connecting], "it would wait for an engine that has gone"
            made.versions.ended(connecting)
            for call in calls:
                last = (await call.done()).events[-1]
                assert last["type"] == "response.completed", call.body
                assert texts(last["response"])[-1] == "Hello there, friend."
            assert [await front.version() for front in fronts] == ["mine@2"] * 2
            assert made.processes[0].stopped.is_set()

    asyncio.run(story())


def test_where_memory_holds_one_a_refused_version_makes_way_for_the_one_before(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        other_words = lambda: scripted(THOUGHT)  # noqa: E731
        engines = (scripted, other_words)
        async with fleet(tmp_path, *engines, narrow=NARROW) as made, two(made) as (one, other):
            refused = await one.act("load", version=2, exact=True)
            assert refused.status == 409, refused.body
            assert refused.json()["gate"]["prompts"] == 2
            assert await one.version() == await other.version() == "mine@1"
            assert [process.stopped.is_set() for process in made.processes] == [1, 1, 0]
            canary = await other.act("load", version=2, canary=0.5)
            assert "a canary is served beside" in canary.error["message"]

    asyncio.run(story())
