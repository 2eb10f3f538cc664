"""The real `openai` SDK on background responses, their replay, items and counts.

Budget: 6 s on one core.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import openai
import pytest

from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
from tests.support.served import ANSWER, CALL, KEYED, THOUGHT, ids, result, script, written
from tests.support.serving import client_of, listening

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.responses import FunctionToolParam

LONG = Script(tuple((i,) for i in ids("<|channel|>final<|message|>") + ids(" word") * 40))
TOOL: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object"},
    "strict": False,
}


def scripted(*texts: str | Script, manual: bool = False) -> ScriptedEngine:
    clock = StepClock.manual() if manual else StepClock.free()
    return ScriptedEngine([script(t) if isinstance(t, str) else t for t in texts], clock=clock)


async def polled(client: AsyncOpenAI, response_id: str) -> Any:
    made = await client.responses.retrieve(response_id)
    while made.status in ("queued", "in_progress"):
        made = await client.responses.retrieve(response_id)
    return made


def test_it_is_started_polled_and_read() -> None:
    async def story() -> None:
        async with listening(scripted(THOUGHT)) as at, client_of(at) as client:
            queued = await client.responses.create(model="demo", input="Hi", background=True)
            assert queued.status == "queued"
            made = await polled(client, queued.id)
            assert (made.status, made.output_text) == ("completed", "Hello there, friend.")
            page = await client.responses.input_items.list(queued.id)
            assert [item.type for item in page.data] == ["message"]
            again = await client.responses.cancel(queued.id)
            assert again.status == "completed"
            await client.responses.delete(queued.id)
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(queued.id)

    asyncio.run(story())


def test_a_stream_is_left_and_taken_up_again() -> None:
    async def story() -> None:
        engine = scripted(LONG, manual=True)
        async with listening(engine, drain_s=0) as at, client_of(at) as client:
            stream = await client.responses.create(
                model="demo", input="Hi", background=True, stream=True
            )
            seen = [await anext(stream) for _ in range(3)]
            await engine.clock.step(12)
            while len(seen) < 9:
                seen.append(await anext(stream))
            await stream.close()
            assert seen[0].type == "response.created"
            again = await client.responses.retrieve(
                seen[0].response.id, stream=True, starting_after=seen[-1].sequence_number
            )
            while engine.requests[0].state == "running":
                await engine.clock.step()
            seen += [event async for event in again]
            assert [event.sequence_number for event in seen] == list(range(len(seen)))
            assert seen[-1].type == "response.completed"
            assert seen[-1].response.output_text == " word" * 40

    asyncio.run(story())


def test_it_is_cancelled() -> None:
    async def story() -> None:
        engine = scripted(LONG, manual=True)
        async with listening(engine, drain_s=0) as at, client_of(at) as client:
            queued = await client.responses.create(model="demo", input="Hi", background=True)
            made = await client.responses.cancel(queued.id)
            assert made.status == "cancelled"
            assert engine.requests[0].state == "aborted"
            assert (await client.responses.cancel(queued.id)).status == "cancelled"

    asyncio.run(story())


def test_a_page_after_a_page_is_asked_for_by_the_sdk_itself() -> None:
    async def story() -> None:
        async with listening(scripted(ANSWER)) as at, client_of(at) as client:
            made = await client.responses.create(
                model="demo", input=[{"role": "user", "content": str(n)} for n in range(25)]
            )
            listed = client.responses.input_items.list(made.id, limit=4, order="asc")
            items: list[Any] = [item async for item in listed]
            texts = [item.content[0].text for item in items]
            assert texts == [str(n) for n in range(25)]

    asyncio.run(story())


def test_tokens_are_counted_before_they_are_spent() -> None:
    async def story() -> None:
        async with listening(scripted(ANSWER)) as at, client_of(at) as client:
            counted = await client.responses.input_tokens.count(model="demo", input="Hello")
            made = await client.responses.create(model="demo", input="Hello")
            assert made.usage is not None
            assert counted.input_tokens == made.usage.input_tokens

    asyncio.run(story())


def test_a_stateless_tool_loop_replays_what_the_sdk_gives() -> None:
    async def story() -> None:
        engine = scripted(CALL, CALL, ANSWER)
        async with listening(engine, **KEYED) as at, client_of(at) as client:
            said: Any = [{"role": "user", "content": "The weather?"}]
            for _ in range(3):
                made = await client.responses.create(
                    model="demo",
                    input=said,
                    tools=[TOOL],
                    store=False,
                    include=["reasoning.encrypted_content"],
                )
                said += [item.model_dump(exclude_none=True) for item in made.output]
                if made.output[-1].type == "function_call":
                    said.append(result(made.output[-1].call_id))
            assert made.output_text == "Hello there, friend."
            prompts = [list(request.prompt_ids) for request in engine.requests]
            kept = written(script(CALL))
            for before, after in ((0, 1), (1, 2)):
                begun = [*prompts[before], *kept]
                assert prompts[after][: len(begun)] == begun

    asyncio.run(story())


def test_a_retry_with_its_key_makes_no_second_response() -> None:
    async def story() -> None:
        engine = scripted(ANSWER)
        async with listening(engine) as at, client_of(at) as client:
            headers = {"Idempotency-Key": "one"}
            made = [
                await client.responses.create(model="demo", input="Hi", extra_headers=headers)
                for _ in range(3)
            ]
            assert len({each.id for each in made}) == len(engine.requests) == 1

    asyncio.run(story())
