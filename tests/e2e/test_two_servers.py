"""Two servers on one SQLite file: what one makes in the background, the other polls, streams,
cancels and deletes. Waits for what happens, at the servers' own pace. Budget: 4 s on one core.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support.background import AT_ONCE, frames, got, replay
from tests.support.served import CALL, LONG, STALLED, WEATHER, served
from tests.support.ticks import settled
from trt_responses.stores.limits import Bounds
from trt_responses.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.served import Served, Written

BOUNDS = Bounds(lease_s=6)
"""Jobs are renewed each second, and outlive a machine that is busy with other things."""


@asynccontextmanager
async def two(path: Path, *written: Written) -> AsyncIterator[tuple[Served, Served]]:
    one, other = (SqliteStore(path / "history.db", BOUNDS) for _ in range(2))
    async with (
        served(*written, store=one, manual=True, **AT_ONCE) as here,
        served(*written, store=other, manual=True, **AT_ONCE) as there,
    ):
        yield here, there


async def until_running(s: Served) -> None:
    while not s.engine.requests:
        await settled(1)


def test_a_stream_is_followed_on_the_other_server_byte_for_byte(tmp_path: Path) -> None:
    async def story() -> None:
        async with two(tmp_path, LONG) as (here, there):
            first = here.client.ask(background=True, stream=True)
            await first.until(lambda c: len(c.heard) > 1)
            response_id = first.events[0]["response"]["id"]
            await here.clock.step(40)
            follows = replay(there, response_id, 4)
            await follows.until(lambda c: len(c.heard) > 1)
            assert follows.events[0]["sequence_number"] == 5
            while not first.ended:
                await here.clock.step(20)
            await follows.done()
            assert frames(follows.body) == frames(first.body)[5:]
            assert await got(there, response_id) == first.events[-1]["response"]

    asyncio.run(story())


def test_the_other_server_cancels_and_deletes(tmp_path: Path) -> None:
    async def story() -> None:
        async with two(tmp_path, STALLED) as (here, there):
            queued = (await here.client.create(background=True)).json()
            await until_running(here)
            await here.clock.step(6)
            at = f"/v1/responses/{queued['id']}"
            last = (await there.client.send("POST", f"{at}/cancel")).json()
            assert last["status"] == "cancelled"
            assert here.last.state == "aborted"
            assert await got(here, queued["id"]) == last
            assert (await here.client.send("DELETE", at)).json()["deleted"] is True
            assert (await there.client.get(at)).status == 404

    asyncio.run(story())


def test_a_tool_loop_alternates_and_its_prompt_extends(tmp_path: Path) -> None:
    async def story() -> None:
        async with two(tmp_path, CALL) as servers:
            previous, prompt = None, list[int]()
            for turn in range(4):
                s = servers[turn % 2]
                said: object = "The weather?"
                if previous is not None:
                    call_id = previous["output"][-1]["call_id"]
                    said = [{"type": "function_call_output", "call_id": call_id, "output": "Wet."}]
                more = {"previous_response_id": previous and previous["id"], "tools": [WEATHER]}
                call = s.client.ask(input=said, **more)
                while not call.ended:
                    await s.clock.step()
                previous = call.json()
                assert s.prompt()[: len(prompt)] == prompt
                prompt = s.prompt()

    asyncio.run(story())
