"""Chat completions through the real `openai` SDK over HTTP, on the scripted engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import CALL, SETTINGS, THOUGHT, script
from tests.support.serving import serving
from tests.support.steering import GUIDES
from trt_responses.app import create_app
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


class City(BaseModel):
    city: str


def test_the_stream_helper_folds_a_thought_and_its_answer() -> None:
    async def story() -> None:
        app = create_app(Settings(**SETTINGS), engine=ScriptedEngine([script(THOUGHT)]))
        async with serving(app) as address, client_of(address.url) as client:
            asked = client.chat.completions.stream(
                model="demo", messages=HELLO, stream_options={"include_usage": True}
            )
            async with asked as stream:
                kinds = {event.type async for event in stream}
                last = await stream.get_final_completion()
            assert {"content.delta", "content.done"} <= kinds
            message = last.choices[0].message
            assert (message.role, message.content) == ("assistant", "Hello there, friend.")
            assert message.to_dict()["reasoning_content"] == "They greet me."
            assert last.usage is not None
            assert last.usage.completion_tokens_details is not None
            assert last.usage.completion_tokens_details.reasoning_tokens

    asyncio.run(story())


def test_the_stream_helper_reads_a_call() -> None:
    async def story() -> None:
        engine = ScriptedEngine([script(CALL)])
        async with serving(create_app(Settings(**SETTINGS), engine=engine)) as address:
            tool: ChatCompletionToolParam = {
                "type": "function",
                "function": WEATHER["function"] | {"strict": False},
            }
            async with client_of(address.url) as client:
                chunks = await client.chat.completions.create(
                    model="demo", messages=HELLO, tools=[tool], stream=True
                )
                found = [c async for chunk in chunks for c in chunk.choices]
                calls = [call for c in found for call in c.delta.tool_calls or ()]
                assert [c.finish_reason for c in found if c.finish_reason] == ["tool_calls"]
                assert calls[0].id is not None
                arguments = "".join((c.function and c.function.arguments) or "" for c in calls)
                assert arguments == '{"city": "Bern"}'

    asyncio.run(story())


def test_a_model_of_pydantic_is_parsed_from_a_guided_answer() -> None:
    async def story() -> None:
        engine = ScriptedEngine([script('{"city":"Bern"}')], guides=GUIDES)
        app = create_app(Settings(**SETTINGS), engine=engine)
        async with serving(app) as address, client_of(address.url) as client:
            answer = await client.chat.completions.parse(
                model="demo", messages=HELLO, response_format=City, reasoning_effort="none"
            )
            assert answer.choices[0].message.parsed == City(city="Bern")

    asyncio.run(story())


def test_a_refusal_is_the_sdks_error_with_its_place() -> None:
    async def story() -> None:
        app = create_app(Settings(**SETTINGS), engine=ScriptedEngine([script(THOUGHT)]))
        async with serving(app) as address, client_of(address.url) as client:
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(model="demo", messages=HELLO, n=2)
            assert (caught.value.param, caught.value.code) == ("n", "unsupported_parameter")

    asyncio.run(story())


def client_of(url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
