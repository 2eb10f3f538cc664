"""The real `openai` SDK over HTTP, on the scripted engine and on the embedded one.

About 15 s in all on one core, most of it the embedded engine's start.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.support.scripted.engine import Die, Script, ScriptedEngine, Stall
from tests.support.sdk_judge import SPECIFIED
from tests.support.served import ANSWER, CALL, THOUGHT, WEATHER, ids, script, squared
from tests.support.serving import listening
from trt_responses.engines.llamacpp.engine import LlamaCppEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from openai.types.responses import FunctionToolParam

    from tests.support.serving import Address
from tests.support.serving import client_of

TOOL: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
assert TOOL["name"] == WEATHER["name"]


def scripted(*texts: str | Script) -> ScriptedEngine:
    return ScriptedEngine([script(t) if isinstance(t, str) else t for t in texts])


async def in_thread(address: Address, story: Callable[[OpenAI], None]) -> None:
    """The synchronous client, beside the loop that serves it."""

    def told() -> None:
        with OpenAI(base_url=f"{address.url}/v1", api_key="none", max_retries=0) as client:
            story(client)

    await asyncio.to_thread(told)


def test_the_synchronous_client_asks_reads_and_deletes() -> None:
    def story(client: OpenAI) -> None:
        made = client.responses.create(model="demo", input="Hello")
        assert made.output_text == "Hello there, friend."
        assert made.usage is not None
        assert made.usage.output_tokens == len(ids(THOUGHT))
        assert client.responses.retrieve(made.id) == made
        with client.responses.stream(model="demo", input="Hello") as stream:
            kinds = [event.type for event in stream]
            assert stream.get_final_response().output_text == made.output_text
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"
        client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError) as caught:
            client.responses.retrieve(made.id)
        assert caught.value.code == "not_found"
        assert [model.id for model in client.models.list()] == ["demo"]
        assert client.models.retrieve("demo").id == "demo"

    async def serve() -> None:
        async with listening(scripted(THOUGHT)) as address:
            await in_thread(address, story)

    asyncio.run(serve())


def test_the_asynchronous_client_streams_events_with_every_specified_key() -> None:
    async def story() -> None:
        async with listening(scripted(THOUGHT)) as address, client_of(address) as client:
            stream = await client.responses.create(model="demo", input="Hello", stream=True)
            events = [event async for event in stream]
            deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
            assert "".join(deltas) == "Hello there, friend."
            last = events[-1]
            assert last.type == "response.completed"
            assert last.response.to_dict().keys() >= SPECIFIED["response"]
            plain = await client.responses.create(model="demo", input="Hello")
            assert plain.output_text == last.response.output_text

    asyncio.run(story())


def test_a_tool_loop_through_the_client() -> None:
    async def story() -> None:
        engine = scripted(CALL, "<|channel|>final<|message|>Sunny.<|return|>")
        async with listening(engine) as address, client_of(address) as client:
            first = await client.responses.create(model="demo", input="Weather?", tools=[TOOL])
            call = first.output[-1]
            assert call.type == "function_call"
            assert (call.name, call.arguments) == ("weather", '{"city": "Bern"}')
            second = await client.responses.create(
                model="demo",
                previous_response_id=first.id,
                tools=[TOOL],
                input=[
                    {
                        "type": "function_call_output",
                        "call_id": call.call_id,
                        "output": "21 degrees",
                    }
                ],
            )
            assert second.output_text == "Sunny."
            one, two = (list(r.prompt_ids) for r in engine.requests)
            kept = [*one, *ids(CALL)]
            assert two[: len(kept)] == kept
            replayed = await client.responses.create(
                model="demo",
                tools=[TOOL],
                input=[  # what agents do: everything again, as it was given
                    {"role": "user", "content": "Weather?"},
                    *[item.to_dict() for item in first.output],  # type: ignore[list-item]
                    {
                        "type": "function_call_output",
                        "call_id": call.call_id,
                        "output": "21 degrees",
                    },
                    *[item.to_dict() for item in second.output],  # type: ignore[list-item]
                    {"role": "user", "content": "Thanks"},
                ],
            )
            assert replayed.status == "completed"

    asyncio.run(story())


def test_a_stream_that_fails_is_read_through_to_its_end() -> None:
    async def story() -> None:
        dying = script("<|channel|>final<|message|>Oh no", Die("out of memory"))
        async with listening(scripted(dying)) as address, client_of(address) as client:
            stream = await client.responses.create(model="demo", input="Hello", stream=True)
            events = [event async for event in stream]
            assert [event.type for event in events[-2:]] == ["error", "response.failed"]
            failed = events[-1]
            assert failed.type == "response.failed"
            assert failed.response.error is not None
            assert "out of memory" in failed.response.error.message
            with pytest.raises(openai.InternalServerError, match="out of memory") as caught:
                await client.responses.create(model="demo", input="Hello")
            assert caught.value.request_id is not None

    asyncio.run(story())


def test_the_clients_own_errors_are_raised_by_kind() -> None:
    async def story() -> None:
        async with (
            listening(scripted(ANSWER), api_keys="ann:good") as address,
            client_of(address) as stranger,
            AsyncOpenAI(base_url=f"{address.url}/v1", api_key="good", max_retries=0) as client,
        ):
            with pytest.raises(openai.AuthenticationError):
                await stranger.responses.create(model="demo", input="Hello")
            with pytest.raises(openai.NotFoundError) as missing:
                await client.responses.create(model="gpt-5", input="Hello")
            assert (missing.value.param, missing.value.code) == ("model", "model_not_found")
            with pytest.raises(openai.BadRequestError) as bad:
                await client.responses.create(model="demo", input="Hello", temperature=9)
            assert (bad.value.param, bad.value.code) == ("temperature", "invalid_value")
            assert bad.value.type == "invalid_request_error"
            assert (await client.responses.create(model="demo", input="Hello")).output_text

    asyncio.run(story())


def test_an_overloaded_server_is_asked_again_when_it_says() -> None:
    """The SDK obeys `retry-after`: the second try comes when the first run has made room."""

    async def story() -> None:
        engine = scripted(script("<|channel|>final<|message|>Hold", Stall()), ANSWER)
        server = listening(engine, max_running=1, max_waiting=0)
        async with server as address, client_of(address) as client:
            stream = await client.responses.create(model="demo", input="Hello", stream=True)
            async for event in stream:
                if event.type == "response.output_text.delta":
                    break
            with pytest.raises(openai.InternalServerError) as caught:
                await client.responses.create(model="demo", input="Hello")
            assert (caught.value.status_code, caught.value.code) == (503, "server_busy")
            assert int(caught.value.response.headers["retry-after"]) in range(1, 6)
            await stream.close()
            patient = client.with_options(max_retries=2)
            assert (await patient.responses.create(model="demo", input="Hi")).output_text

    asyncio.run(story())


def test_64_streams_at_once_get_each_its_own_text() -> None:
    async def story() -> None:
        async with listening(ScriptedEngine(squared)) as address, client_of(address) as client:

            async def one(number: int) -> str:
                text = f"number={number};"
                stream = await client.responses.create(model="demo", input=text, stream=True)
                return "".join(
                    [e.delta async for e in stream if e.type == "response.output_text.delta"]
                )

            texts = await asyncio.gather(*(one(number) for number in range(64)))
            assert texts == [f"The square is {n * n}." for n in range(64)]

    asyncio.run(story())


@pytest.mark.xdist_group("embedded")
def test_the_client_and_the_embedded_engine(random_gguf: Path) -> None:
    """Budget: 15 s. A model with nothing to say: what counts is that it is all said lawfully."""

    def story(client: OpenAI) -> None:
        made = client.responses.create(model="demo", input="Hello", max_output_tokens=24)
        assert made.status in ("completed", "incomplete")
        assert made.usage is not None
        assert 1 <= made.usage.output_tokens <= 24
        with client.responses.stream(
            model="demo", input="Hello", max_output_tokens=24, previous_response_id=made.id
        ) as stream:
            events = list(stream)
        last = events[-1]
        assert last.type in ("response.completed", "response.incomplete")
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert last.response.to_dict().keys() >= SPECIFIED["response"]
        same = [
            client.responses.create(
                model="demo",
                input="Hello",
                max_output_tokens=8,
                temperature=0,
                extra_body={"seed": 5},
            )
            for _ in range(2)
        ]
        assert said(same[0]) == said(same[1])

    async def serve() -> None:
        engine = LlamaCppEngine(random_gguf, context_tokens=2048, slots=2, threads=1)
        async with listening(engine) as address:
            await in_thread(address, story)

    asyncio.run(serve())


def said(response: Any) -> list[Any]:
    """A response's texts."""
    return [part.text for item in response.output for part in getattr(item, "content", None) or ()]
