"""The stand-in engine of `make gaps`."""

from __future__ import annotations

import asyncio

from scripts.faults.scripted import GUIDES, steady
from tests.support.examples import FUNCTION
from tests.support.served import served


def test_the_steady_engine_ends_its_answer_where_a_strict_tool_has_its_header_read() -> None:
    async def story() -> None:
        async with served(steady, guides=GUIDES, context_tokens=1024) as s:
            reply = (await s.client.create(tools=[FUNCTION | {"strict": True}])).json()
            assert reply["status"] == "completed"
            assert [part["text"] for part in reply["output"][0]["content"]] == ["Hello."]
            assert len(s.engine.requests) == 2

    asyncio.run(story())
