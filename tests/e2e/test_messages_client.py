"""Anthropic's Messages through the real `anthropic` SDK over HTTP, on the scripted engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import ANSWER, CALL, KEYED, THOUGHT, script
from tests.support.serving import listening
from tests.support.steering import GUIDES

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import MessageParam, ToolParam, ToolResultBlockParam

HELLO: list[MessageParam] = [{"role": "user", "content": "Hello"}]
WEATHER: ToolParam = {"name": "weather", "input_schema": {"type": "object"}}


class City(BaseModel):
    city: str


def client_of(url: str, key: str = "none") -> AsyncAnthropic:
    from anthropic import AsyncAnthropic

    return AsyncAnthropic(base_url=url, api_key=key, max_retries=0)


def test_the_stream_helper_folds_a_thought_and_its_answer() -> None:
    async def story() -> None:
        async with listening(ScriptedEngine([script(THOUGHT)]), **KEYED) as address:
            async with (
                client_of(address.url) as client,
                client.messages.stream(
                    model="demo", max_tokens=1000, messages=HELLO, thinking={"type": "adaptive"}
                ) as stream,
            ):
                kinds = {event.type async for event in stream}
                last = await stream.get_final_message()
            assert {"thinking", "signature", "text", "message_stop"} <= kinds
            thought, answer = last.content
            assert (thought.type, answer.type) == ("thinking", "text")
            assert thought.type == "thinking"
            assert thought.thinking == "They greet me."
            assert thought.signature
            assert last.stop_reason == "end_turn"
            assert last.usage.output_tokens

    asyncio.run(story())


def test_a_tool_turn_carries_the_thought_and_the_call() -> None:
    async def story() -> None:
        engine = ScriptedEngine([script(CALL), script(ANSWER)])
        async with listening(engine, **KEYED) as address, client_of(address.url) as client:
            messages = list(HELLO)
            for _ in range(2):
                async with client.messages.stream(
                    model="demo",
                    max_tokens=1000,
                    messages=messages,
                    tools=[WEATHER],
                    thinking={"type": "adaptive"},
                ) as stream:
                    last = await stream.get_final_message()
                messages.append({"role": "assistant", "content": last.content})
                calls = [block for block in last.content if block.type == "tool_use"]
                if calls:
                    assert calls[0].input == {"city": "Bern"}
                    result: ToolResultBlockParam = {
                        "type": "tool_result",
                        "tool_use_id": calls[0].id,
                        "content": "Rain.",
                    }
                    messages.append({"role": "user", "content": [result]})
            assert last.stop_reason == "end_turn"
            assert len(messages) == 4

    asyncio.run(story())


def test_a_model_of_pydantic_is_parsed_and_tokens_are_counted() -> None:
    async def story() -> None:
        engine = ScriptedEngine([script('{"city":"Bern"}')], guides=GUIDES)
        async with listening(engine, **KEYED) as address, client_of(address.url) as client:
            answer = await client.messages.parse(
                model="demo",
                max_tokens=1000,
                messages=HELLO,
                output_format=City,
                thinking={"type": "disabled"},
            )
            assert answer.parsed_output == City(city="Bern")
            counted = await client.messages.count_tokens(model="demo", messages=HELLO)
            assert counted.input_tokens

    asyncio.run(story())


def test_refusals_are_the_sdks_errors() -> None:
    import anthropic

    async def story() -> None:
        engine = ScriptedEngine([script(ANSWER)])
        async with listening(engine, api_keys="me:secret", **KEYED) as address:
            async with client_of(address.url, "wrong") as client:
                with pytest.raises(anthropic.AuthenticationError):
                    await client.messages.create(model="demo", max_tokens=9, messages=HELLO)
            async with client_of(address.url, "secret") as client:
                with pytest.raises(anthropic.NotFoundError) as caught:
                    await client.messages.create(model="claude", max_tokens=9, messages=HELLO)
                assert caught.value.request_id is not None
                assert caught.value.request_id.startswith("req_")
                with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
                    await client.messages.create(model="demo", max_tokens=0, messages=HELLO)

    asyncio.run(story())
