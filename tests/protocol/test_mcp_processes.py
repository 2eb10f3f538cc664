"""`mcp` over HTTP: servers that are processes, and bad servers beside other streams."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.asgi import until
from tests.support.mcp_served import calling, items, offer, over, with_process
from tests.support.metrics_judge import Scrape
from tests.support.processes import children_of
from tests.support.sampled import sampled
from tests.support.served import ANSWER, ENDLESS, script, vocabulary
from tests.support.story import story

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from starlette.types import Message

    from tests.support.scripted.engine import Script
    from trt_responses.engine import GenerateOptions


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@story
async def test_each_response_has_a_process_unless_it_is_shared(
    tmp_path: Path, shared: bool
) -> None:
    def turns(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        answered = "process " in vocabulary().text(list(prompt_ids))
        return script(ANSWER if answered else calling("add"))

    children = set(children_of(os.getpid()))
    async with with_process(tmp_path, "pid", turns, shared=shared) as app:
        calls = await asyncio.gather(*(app.client.create(tools=[offer()]) for _ in range(3)))
        calls.append(await app.client.create(tools=[offer()]))
        told = {items(call, "mcp_call")[0]["output"] for call in calls}
        assert len(told) == (1 if shared else 4)
        if not shared:
            await until(lambda: set(children_of(os.getpid())) <= children)
        else:
            (pid,) = set(children_of(os.getpid())) - children
            assert told == {f"process {pid};"}
            os.kill(pid, signal.SIGKILL)  # the next response has another one
            await until(lambda: not set(children_of(os.getpid())) - children)
            call = await app.client.create(tools=[offer()])
            assert items(call, "mcp_call")[0]["status"] == "completed"
    assert set(children_of(os.getpid())) <= children


@story
async def test_a_hang_up_in_a_call_leaves_no_process(tmp_path: Path) -> None:
    children = set(children_of(os.getpid()))
    async with with_process(tmp_path, "silent", calling("add"), ANSWER) as app:
        call = app.client.ask(tools=[offer()], stream=True)
        await call.until(lambda call: b"mcp_call_arguments.done" in call.body)
        assert set(children_of(os.getpid())) - children
        scraped = Scrape((await app.client.get("/metrics")).body)
        assert scraped.ours("tool_processes", tool="mcp") == 1
        call.hang_up()
        await asyncio.gather(call.done(), return_exceptions=True)
        await until(lambda: set(children_of(os.getpid())) <= children)
        assert len(app.runs) == 0
        assert len(app.engine.requests) == 1


@sampled(
    "how, changes",
    [
        ("no list", {}),
        ("not a list", {}),
        ("empty list", {}),
        ("cursor", {}),
        ("many", {}),
        ("silent list", {}),
        ("names", {"allowed_tools": []}),
        ("names", {"allowed_tools": ["other"]}),
    ],
    every=3,
)  # 5 s: four processes each
@story
async def test_a_server_that_offers_nothing_is_ended(
    tmp_path: Path, how: str, changes: dict[str, Any]
) -> None:
    children = set(children_of(os.getpid()))
    patience_s = 0.7 if how == "silent list" else 2.0  # which is waited for four times
    async with with_process(tmp_path, how, ANSWER, mcp_connect_s=patience_s, mcp_list_s=0) as app:
        for _ in range(2):
            call = await app.client.create(tools=[offer(**changes)])
            assert items(call, "mcp_list_tools")[0]["tools"] == []
            await until(lambda: set(children_of(os.getpid())) <= children)
            counted = {"model": "demo", "input": "Hi", "tools": [offer(**changes)]}
            count = await app.client.send(
                "POST", "/v1/responses/input_tokens", json.dumps(counted).encode()
            )
            assert count.status == 200
            await until(lambda: set(children_of(os.getpid())) <= children)


@pytest.mark.parametrize("transport", ["stdio", "http"])
@sampled("how", ["pings", "flood", "long", "silent", "die", "cursor", "many"], every=3)  # 3 s
@story
async def test_no_other_stream_misses_a_step_beside_a_hostile_server(
    tmp_path: Path, how: str, transport: str
) -> None:
    def turns(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        text = vocabulary().text(list(prompt_ids))
        if "beside" in text:
            return ENDLESS
        return script(ANSWER if "to=assistant" in text else calling("add"))

    more = {"timeout_s": 0.5}
    async with over(transport, tmp_path, how, turns, more=more, manual=True) as app:
        beside = app.client.ask(input="beside", stream=True)
        asking = asyncio.ensure_future(app.client.create(tools=[offer()]))
        stepped = 0
        while not asking.done() or stepped < 150:
            await app.clock.step()
            stepped += 1
        lists = how in ("cursor", "many")
        (item,) = items(asking.result(), "mcp_list_tools" if lists else "mcp_call")
        assert item["error"]
        beside.hang_up()
        await asyncio.gather(beside.done(), return_exceptions=True)
    steps = [heard.step for heard in beside.heard if b"output_text.delta" in _body(heard.message)]
    assert len(steps) > 100
    assert steps == list(range(steps[0], steps[0] + len(steps)))


def _body(message: Message) -> bytes:
    body: bytes = message.get("body", b"")
    return body
