"""Conversations and compaction through the real `openai` SDK over HTTP, on the scripted engine."""

from __future__ import annotations

import asyncio

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.conversations import Conversation, Message
from openai.types.responses import ResponseCompactionItem, ResponseUsage

from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import ANSWER, KEYED, SETTINGS, THOUGHT, script
from tests.support.serving import serving
from tests.support.steering import GUIDES
from trt_responses.app import create_app
from trt_responses.settings import Settings

SUMMARY = ("They greet.<|end|>", "They greet each other.<|return|>")
LONG = "An old answer, which says much of many things. " * 120


def test_a_conversation_from_its_beginning_to_its_end() -> None:
    async def story() -> None:
        app = create_app(Settings(**SETTINGS), engine=ScriptedEngine([script(THOUGHT)]))
        async with serving(app) as address, client_of(address.url) as client:
            talk = await client.conversations.create(
                items=[{"role": "user", "content": "Be brief."}], metadata={"a": "b"}
            )
            Conversation.model_validate(talk.to_dict(), strict=True)
            async with client.responses.stream(
                model="demo", input="Hello", conversation=talk.id
            ) as stream:
                made = await stream.get_final_response()
            assert made.conversation is not None
            assert made.conversation.id == talk.id
            items = [item async for item in client.conversations.items.list(talk.id, limit=2)]
            assert [item.type for item in items] == ["message", "reasoning", "message", "message"]
            told = [item.to_dict()["id"] for item in reversed(made.output)]
            assert [item.id for item in items[:2]] == told
            (added,) = (
                await client.conversations.items.create(
                    talk.id, items=[{"role": "user", "content": "More."}]
                )
            ).data
            assert isinstance(added, Message)
            assert added.id is not None
            got = await client.conversations.items.retrieve(added.id, conversation_id=talk.id)
            assert got == added
            left = await client.conversations.items.delete(added.id, conversation_id=talk.id)
            assert left.id == talk.id
            changed = await client.conversations.update(talk.id, metadata={"c": "d"})
            assert (await client.conversations.retrieve(talk.id)) == changed
            assert (await client.conversations.delete(talk.id)).deleted
            with pytest.raises(openai.NotFoundError) as gone:
                await client.conversations.retrieve(talk.id)
            assert gone.value.code == "not_found"

    asyncio.run(story())


def test_a_conversation_is_compacted_when_it_is_asked_for_and_by_a_threshold() -> None:
    async def story() -> None:
        scripts = [*(script(text) for text in (*SUMMARY, ANSWER, *SUMMARY, ANSWER))]
        engine = ScriptedEngine(scripts, guides=GUIDES)
        app = create_app(Settings(**(SETTINGS | KEYED)), engine=engine)
        async with serving(app) as address, client_of(address.url) as client:
            short = await client.responses.compact(
                model="demo",
                input=[
                    {"role": "user", "content": "Hello"},
                    {"role": "assistant", "content": LONG},
                ],
            )
            # the SDK's type has no message of a user's, which the API gives all the same
            said, item = (one.to_dict(warnings=False) for one in short.output)
            assert said["content"] == [{"type": "input_text", "text": "Hello"}]
            ResponseCompactionItem.model_validate(item, strict=True)
            ResponseUsage.model_validate(short.usage.to_dict(), strict=True)
            again = await client.responses.create(
                model="demo",
                input=[said, item],  # type: ignore[list-item]
                store=False,
            )
            assert again.output_text == "Hello there, friend."
            async with client.responses.stream(
                model="demo",
                input=[
                    {"role": "user", "content": "Hello"},
                    {"role": "assistant", "content": LONG},
                    {"role": "user", "content": "And now?"},
                ],
                context_management=[{"type": "compaction", "compact_threshold": 1000}],
            ) as stream:
                kinds = [event.type async for event in stream]
                made = await stream.get_final_response()
            assert "response.compaction.compacting" in kinds
            assert [item.type for item in made.output] == ["compaction", "message"]
            assert made.output_text == "Hello there, friend."

    asyncio.run(story())


def client_of(url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
