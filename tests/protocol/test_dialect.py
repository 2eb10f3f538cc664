"""Two spellings of the same events: the SDKs', and the specification's, which its schema judges."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import jsonschema
import orjson
import pytest

from tests.support.asgi import JSON, asked
from tests.support.replies import check_streamed, without_ids
from tests.support.scripted.engine import Die
from tests.support.served import ANSWER, CALL, THOUGHT, WEATHER, script, served

if TYPE_CHECKING:
    from tests.support.asgi import Call, Client
from tests.support.specification import RENAMED, check_body, check_event, schemas

OPEN = JSON | {"x-trt-dialect": "open-responses"}


async def ask(client: Client, headers: dict[str, str], **fields: Any) -> Call:
    return await client.send("POST", "/v1/responses", orjson.dumps(asked(**fields)), headers)


FULL = {
    "instructions": "Be kind.",
    "tools": [WEATHER | {"description": "d", "strict": False}],
    "tool_choice": "auto",
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"verbosity": "low"},
    "metadata": {"a": "b"},
    "max_output_tokens": 400,
    "max_tool_calls": 3,
    "user": "u",
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "service_tier": "flex",
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 2,
}


@pytest.mark.parametrize("fields", [{}, FULL], ids=["bare", "full"])
@pytest.mark.parametrize("text", [ANSWER, THOUGHT, CALL], ids=["answer", "thought", "call"])
def test_every_event_and_body_of_the_specifications_dialect_validates(
    text: str, fields: dict[str, Any]
) -> None:
    """Budget: 3 s for all."""

    async def story() -> None:
        async with served(text) as s:
            call = await ask(s.client, OPEN, stream=True, **({"tools": [WEATHER]} | fields))
            assert call.status == 200
            for event in call.events:
                check_event(event)
            last = call.events[-1]["response"]
            check_body(last)
            plain = (await ask(s.client, OPEN, **({"tools": [WEATHER]} | fields))).json()
            check_body(plain)
            assert without_ids(plain) == without_ids(last)
            kept = (await s.client.get(f"/v1/responses/{last['id']}")).json()
            check_body(kept)

    asyncio.run(story())


def test_incomplete_and_failed_responses_validate_too_and_the_error_is_nested() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            call = await ask(s.client, OPEN, stream=True, max_output_tokens=12)
            for event in call.events:
                check_event(event)
            assert call.events[-1]["type"] == "response.incomplete"
        async with served(script("<|channel|>final<|message|>Half", Die("burnt"))) as s:
            call = await ask(s.client, OPEN, stream=True)
            for event in call.events:
                check_event(event)
            error, failed = call.events[-2:]
            assert error.keys() == {"type", "sequence_number", "error"}
            assert error["error"]["type"] == "server_error"
            assert "burnt" in error["error"]["message"]
            assert failed["type"] == "response.failed"

    asyncio.run(story())


def test_the_dialects_say_the_same_in_other_words() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            ours = await s.client.create(stream=True)
            theirs = await ask(s.client, OPEN, stream=True)
            check_streamed(ours)
            named = [RENAMED.get(event["type"], event["type"]) for event in ours.events]
            assert named == [event["type"] for event in theirs.events]
            assert set(RENAMED.values()) <= set(named)
            for mine, other in zip(ours.events, theirs.events, strict=True):
                assert without_ids(mine | {"type": "", "item_id": ""}) == without_ids(
                    other | {"type": "", "item_id": ""}
                )

    asyncio.run(story())


def test_the_header_alone_chooses_the_dialect() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            call = await s.client.create(stream=True)
            assert "response.reasoning_text.delta" in {event["type"] for event in call.events}
            other = await ask(s.client, OPEN, stream=True)
            assert "response.reasoning.delta" in {event["type"] for event in other.events}
            usual = await ask(s.client, JSON | {"x-trt-dialect": " OpenAI"}, stream=True)
            assert "response.reasoning_text.delta" in {event["type"] for event in usual.events}
            for odd in ("", "openai2", "\xff" * 500):
                call = await ask(s.client, JSON | {"x-trt-dialect": odd})
                assert (call.status, call.error["param"]) == (400, "x-trt-dialect")
                assert len(call.body) < 1000

    asyncio.run(story())


def test_what_the_specification_has_no_words_for_is_refused_in_its_dialect() -> None:
    tools = [
        {"type": "custom", "name": "c"},
        {"type": "namespace", "name": "n", "tools": [WEATHER]},
    ]

    async def story() -> None:
        async with served() as s:
            for tool in tools:
                call = await ask(s.client, OPEN, tools=[WEATHER, tool])
                assert (call.status, call.error["param"]) == (400, "tools[1].type")
                assert (await ask(s.client, JSON, tools=[WEATHER, tool])).status == 200

    asyncio.run(story())


def test_the_schema_judges_for_it_refuses_what_lacks_a_key() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            call = await ask(s.client, OPEN, stream=True)
            for event in call.events:
                for key in event.keys() - {"logprobs", "obfuscation"}:
                    with pytest.raises((jsonschema.ValidationError, AssertionError, KeyError)):
                        check_event({k: v for k, v in event.items() if k != key})
            body = call.events[-1]["response"]
            optional = {"object"}
            for key in schemas()[0]["ResponseResource"]["required"]:
                if key not in optional:
                    with pytest.raises(jsonschema.ValidationError):
                        check_body({k: v for k, v in body.items() if k != key})

    asyncio.run(story())


@pytest.mark.parametrize(
    ("asks", "param"),
    [
        ({"reasoning": {"effort": "minimal"}}, "reasoning.effort"),
        ({"reasoning": {"effort": "max"}}, "reasoning.effort"),
        ({"tools": [{"type": "custom", "name": "shell"}]}, "tools[0].type"),
    ],
)
def test_what_the_specification_cannot_say_is_refused_in_its_dialect(
    asks: dict[str, Any], param: str
) -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            data = orjson.dumps(asked(input="Hi", **asks))
            refused = await s.client.send("POST", "/v1/responses", data, OPEN)
            assert (refused.status, refused.error["param"]) == (400, param)
            usual = await s.client.send("POST", "/v1/responses", data, JSON)
            assert usual.status == 200

    asyncio.run(story())
