"""Thoughts as reasoning summaries: a setting, for clients that show nothing else of a thought."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.support.served import CALL, KEYED, THOUGHT, WEATHER, result, served

EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
ASKED = {"reasoning": {"summary": "auto"}}


def test_a_thought_is_its_summary_where_the_client_asks_for_one() -> None:
    async def story() -> None:
        async with served(THOUGHT, thought_summaries=True) as s:
            plain = (await s.client.create(**ASKED)).json()
            Response.model_validate(plain)
            thought = plain["output"][0]
            assert thought["summary"] == [{"type": "summary_text", "text": "They greet me."}]
            assert thought["content"] == []
            assert plain["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
            events = (await s.client.create(**ASKED, stream=True)).events
            for event in events:
                EVENT.validate_python(event)
            kinds = [event["type"].removeprefix("response.") for event in events]
            first, last = kinds.index("output_item.added"), kinds.index("output_item.done")
            assert kinds[first : first + 2] == [
                "output_item.added",
                "reasoning_summary_part.added",
            ]
            assert set(kinds[first + 2 : last - 2]) == {"reasoning_summary_text.delta"}
            assert kinds[last - 2 : last] == [
                "reasoning_summary_text.done",
                "reasoning_summary_part.done",
            ]
            assert events[-1]["response"]["output"][0]["summary"] == thought["summary"]
            without = (await s.client.create()).json()["output"][0]
            assert (without["summary"], len(without["content"])) == ([], 1)
        async with served(THOUGHT) as s:
            kept = (await s.client.create(**ASKED)).json()["output"][0]
            assert kept["summary"] == [], "the setting is off"

    asyncio.run(story())


@pytest.mark.parametrize("include", [[], ["reasoning.encrypted_content"]])
def test_a_summary_comes_back_as_the_thought_it_is(include: list[str]) -> None:
    async def story() -> None:
        asked: dict[str, Any] = {"tools": [WEATHER], "include": include}
        prompts = []
        for fields in ({}, ASKED):
            async with served(CALL, THOUGHT, thought_summaries=True, **KEYED) as s:
                output = (await s.client.create(**asked, **fields)).json()["output"]
                items = [{"role": "user", "content": "Hello"}, *output]
                await s.client.create(**asked, input=[*items, result(output[1]["call_id"])])
                prompts.append(s.prompt())
        assert prompts[0] == prompts[1]

    asyncio.run(story())
