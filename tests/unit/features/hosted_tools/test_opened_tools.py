"""The owner of a response's sessions: each is closed, whatever the others do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from tests.support.story import story
from tests.support.turns import turn
from trt_responses.accept.accepted import BuiltInTool
from trt_responses.features.hosted_tools.sessions import OfferMemory, OpenedTools
from trt_responses.tool import Function, Opening, Recipient

if TYPE_CHECKING:
    from trt_responses.tool import Tool


class Offers:
    """A tool whose session offers nothing, and whose end is what a test says."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.recipients: dict[str, Recipient] = {}
        self.may_end = asyncio.Event()
        self.closed = 0
        self._fault = fault

    async def open(self, opening: Opening) -> Offers:
        return self

    async def close(self) -> None:
        await self.may_end.wait()
        self.closed += 1
        if self._fault is not None:
            raise self._fault


async def opened(*tools: Offers) -> OpenedTools:
    made = OpenedTools(OfferMemory())
    for tool in tools:
        one = BuiltInTool("mcp", (), "tools[0]", {}, shows_outputs=False)
        await made.open(one, cast("Tool", tool), Opening("ann"), ())
    return made


@story
async def test_each_session_is_closed_once_though_one_breaks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tools = Offers(), Offers(ValueError("boom")), Offers()
    made = await opened(*tools)
    for tool in tools:
        tool.may_end.set()
    await made.close()
    await made.close()
    assert [tool.closed for tool in tools] == [1, 1, 1]
    assert "boom" in caplog.text


@story
async def test_each_session_is_closed_though_the_caller_is_cancelled() -> None:
    tools = Offers(), Offers()
    closing = asyncio.create_task((await opened(*tools)).close())
    await turn()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    for tool in tools:
        tool.may_end.set()
    await turn(5)
    assert [tool.closed for tool in tools] == [1, 1]


@story
async def test_what_servers_offered_lately_is_kept_and_the_longest_unused_goes_first() -> None:
    def offer(name: str) -> dict[str, Recipient]:
        facts = {"name": name, "server_label": "demo"}
        return {f"functions.{name}": Recipient("mcp", facts, function=Function("", {}))}

    memory, one, two, three = OfferMemory(most=2), offer("one"), offer("two"), offer("three")
    first, second = [await memory.offered(each, "tools[0]") for each in (one, two)]
    assert await memory.offered(one, "tools[0]") is first
    joined = memory.joined([], [first])
    assert memory.joined([], [first]) is joined
    assert memory.joined([], [second]) is not joined
    await memory.offered(three, "tools[0]")
    assert await memory.offered(one, "tools[0]") is first
    assert await memory.offered(two, "tools[0]") is not second, "it was the longest unused"
    assert await memory.offered(one, "tools[1]") is not first, "faults name its place"
