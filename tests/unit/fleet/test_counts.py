"""Places, limits and turns, counted over several front ends of one engine."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, ExitStack, closing
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.asgi import Client, living, until
from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import SETTINGS, STALLED
from tests.support.server_processes import ROOT
from tests.support.ticks import settled
from trt_responses.app import create_app
from trt_responses.errors import Overloaded, ServerBusy
from trt_responses.features.limits.admission import Admission, Bounds
from trt_responses.features.limits.counts import NEVER_USED
from trt_responses.features.limits.keys import OwnerLimits
from trt_responses.fleet.counts import OFFER_S, OWNERS, SharedCounts, make_counts
from trt_responses.settings import Settings
from trt_responses.setup.engine import Given

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from trt_responses.features.limits.admission import Place

RACER = """
import sys, time
from pathlib import Path
from trt_responses.features.limits.admission import Admission
from trt_responses.features.limits.keys import OwnerLimits
from trt_responses.errors import Overloaded
from trt_responses.fleet import counts
from trt_responses.fleet.counts import SharedCounts
counts.LOCK_TRIES = 10**6  # one that is held back by the machine keeps the other waiting
path, number, limits = Path(sys.argv[1]), int(sys.argv[2]), OwnerLimits(requests_per_minute=6000)
line = Admission(lambda: 10000, limits_of=lambda _: limits, clock_s=lambda: 1.0,
                 counts=SharedCounts(path, number))
print("ready", flush=True)
sys.stdin.readline()
let_in = 0
for _ in range(8000):
    try:
        line.enter("a")
    except Overloaded:
        continue
    let_in += 1
print(let_in, flush=True)
sys.stdin.readline()
"""
"""A front end that lets in whomever it may, and then waits, with all of them in it."""


class Fleet:
    """The admissions of two front ends, on one clock. `run` a story with it once."""

    def __init__(self, path: Path, places: int = 2, line: int = 8, **limits: int) -> None:
        make_counts(path, 2)
        self.now_s = 100.0
        self.counts = [SharedCounts(path, number) for number in range(2)]
        self.lines = [
            Admission(
                lambda: places,
                Bounds(waiting=line, waiting_tokens=1000),
                limits_of=lambda _: OwnerLimits(**limits),
                clock_s=lambda: self.now_s,
                counts=counts,
            )
            for counts in self.counts
        ]

    def enter(self, number: int, owner: str = "a", tokens: int = 1) -> Place:
        place = self.lines[number].enter(owner)
        try:
            place.line_up(tokens)
        except BaseException:
            place.leave()
            raise
        return place

    def look(self) -> None:
        """Twice each, so that everybody has seen what the others offer."""
        for line in self.lines * 2:
            line.look()

    def run(self, story: Callable[[Fleet], None]) -> None:
        """In a loop, by whose timers lines look again."""

        async def told() -> None:
            story(self)

        try:
            asyncio.run(told())
        finally:
            for counts in self.counts:
                counts.close()


async def front_ends(
    stack: AsyncExitStack, path: Path, engines: Sequence[ScriptedEngine], **settings: int
) -> list[Client]:
    """Apps that count together, while the stack lasts."""
    clients = []
    for number, engine in enumerate(engines):
        counts = stack.enter_context(closing(SharedCounts(path, number)))
        given = Given(engine, counts=counts)
        app = create_app(Settings(**SETTINGS, **settings), given=given)
        await stack.enter_async_context(living(app))
        clients.append(Client(app))
    return clients


def test_three_places_are_three_over_two_front_ends(tmp_path: Path) -> None:
    make_counts(tmp_path / "counts", 2)

    async def run() -> None:
        engines = [ScriptedEngine([STALLED]) for _ in range(2)]
        async with AsyncExitStack() as stack:
            here, there = await front_ends(stack, tmp_path / "counts", engines, max_running=3)
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


def test_background_responses_of_an_owner_are_counted_together(tmp_path: Path) -> None:
    make_counts(tmp_path / "counts", 2)

    async def run() -> None:
        async with AsyncExitStack() as stack:
            engines = [ScriptedEngine([STALLED]) for _ in range(2)]
            clients = await front_ends(
                stack, tmp_path / "counts", engines, max_background=2, drain_s=0
            )
            made = [await client.create(background=True) for client in clients]
            assert [reply.status for reply in made] == [200, 200]
            assert (await clients[0].create(background=True)).status == 429
            cancel = f"/v1/responses/{made[0].json()['id']}/cancel"
            assert (await clients[0].send("POST", cancel)).status == 200
            await settled()
            assert (await clients[1].create(background=True)).status == 200

    asyncio.run(run())


def test_a_limit_of_requests_a_minute_is_one_over_processes_that_race(tmp_path: Path) -> None:
    make_counts(tmp_path / "counts", 2)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path / "counts"), str(number)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(2)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == b"ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write(b"\n")
            racer.stdin.flush()
        let_in = [int(racer.stdout.readline()) for racer in racers if racer.stdout]
        assert sum(let_in) == 6000
        with closing(SharedCounts(tmp_path / "counts", 0)) as counts:
            assert (counts.waiting, counts.owner("a").waiting) == (6000, 6000)
            os.kill(racers[0].pid, signal.SIGKILL)
            racers[0].wait()
            counts.clear()  # as the fleet does
            assert (counts.waiting, counts.owner("a").waiting) == (let_in[1], let_in[1])
            assert counts.owner("a").requests.read()[0] == 0  # what was used stays used
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


def test_an_owners_responses_are_bounded_over_all(tmp_path: Path) -> None:
    def story(fleet: Fleet) -> None:
        running = [fleet.enter(number) for number in range(2)]
        waits = fleet.enter(0)
        assert [place.state for place in (*running, waits)] == ["running", "running", "waiting"]
        with pytest.raises(Overloaded, match="2 responses of yours are being made and 1 wait"):
            fleet.enter(1)
        assert fleet.enter(1, "b").state == "running"
        running[1].leave()
        fleet.look()
        assert waits.state == "running"

    Fleet(tmp_path / "counts", places=8, running=2, waiting=1).run(story)


def test_tokens_a_minute_are_used_up_by_all(tmp_path: Path) -> None:
    def story(fleet: Fleet) -> None:
        fleet.enter(0, tokens=300).leave(400)
        with pytest.raises(Overloaded, match="600 tokens a minute"):
            fleet.enter(1)
        fleet.now_s += 10.1
        fleet.enter(1).leave()

    Fleet(tmp_path / "counts", places=8, tokens_per_minute=600).run(story)


def test_what_waits_is_bounded_over_all(tmp_path: Path) -> None:
    def story(fleet: Fleet) -> None:
        fleet.enter(0)
        waiting = [fleet.enter(0, "b", 600), fleet.enter(1, "c", 300)]
        with pytest.raises(ServerBusy, match="1 responses are being made and 2 wait"):
            fleet.enter(1, "d")
        waiting[1].leave()
        with pytest.raises(ServerBusy, match="Prompts of 600 tokens wait"):
            fleet.enter(1, "d", 500)

    Fleet(tmp_path / "counts", places=1, line=2).run(story)


def test_a_place_goes_to_who_is_first_in_all_lines(tmp_path: Path) -> None:
    def story(fleet: Fleet) -> None:
        first = fleet.enter(0)
        there = fleet.enter(1, "b")
        fleet.now_s += 0.01
        here = fleet.enter(0, "c")
        first.leave()  # whose own line looks at once, and leaves the place to the other
        assert (here.state, there.state) == ("waiting", "waiting")
        fleet.look()
        assert (here.state, there.state) == ("waiting", "running")
        there.leave()
        fleet.look()
        assert here.state == "running"

    Fleet(tmp_path / "counts", places=1).run(story)


def test_nobody_waits_for_a_front_end_that_hangs(tmp_path: Path) -> None:
    def story(fleet: Fleet) -> None:
        first, there, here = fleet.enter(0), fleet.enter(1, "b"), fleet.enter(0, "c")
        fleet.now_s += OFFER_S
        first.leave()
        assert (here.state, there.state) == ("running", "waiting")

    Fleet(tmp_path / "counts", places=1).run(story)


def test_a_process_stopped_with_the_lock_stops_nobody(tmp_path: Path) -> None:
    def story(fleet: Fleet) -> None:
        with (tmp_path / "counts").open("rb") as stopped:
            fcntl.flock(stopped, fcntl.LOCK_EX)
            assert fleet.enter(0).state == "running"

    Fleet(tmp_path / "counts").run(story)


def test_of_too_many_owners_the_one_idle_longest_is_forgotten(tmp_path: Path) -> None:
    make_counts(tmp_path / "counts", 2)
    with ExitStack() as stack:
        here, there = (
            stack.enter_context(closing(SharedCounts(tmp_path / "counts", number)))
            for number in range(2)
        )
        for number in range(OWNERS):
            here.owner(str(number)).requests.write(number, float(number))
        here.owner("0").add(running=1)
        there.owner("new").add(waiting=2)
        assert here.owner("0").running == 1
        assert here.owner("new").waiting == 2
        assert here.owner("2").requests.read()[0] == 2
        assert there.owner("1").requests.read() == NEVER_USED


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from("abc"), st.integers(0, 5))))
def test_whatever_comes_and_goes_both_count_the_same(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[int, str, int]]
) -> None:
    def story(fleet: Fleet) -> None:
        held: list[tuple[str, Place]] = []
        for number, owner, choice in acts:
            if choice < 3 or not held:
                held.append((owner, fleet.enter(number, owner, choice)))
            else:
                held.pop(choice % len(held))[1].leave(choice)
            fleet.look()
            running = [owner for owner, place in held if place.state == "running"]
            waiting = [place.tokens for _, place in held if place.state == "waiting"]
            assert len(running) <= 3
            assert all(running.count(owner) <= 2 for owner in running)
            for counts in fleet.counts:
                found = counts.running, counts.waiting, counts.waiting_tokens
                assert found == (len(running), len(waiting), sum(waiting))
            able = [o for o, p in held if p.state == "waiting" and running.count(o) < 2]
            assert len(running) == 3 or not able

    Fleet(tmp_path_factory.getbasetemp() / f"counts-{os.getpid()}", 3, 99, running=2).run(story)
