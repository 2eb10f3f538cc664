"""What `include` adds of ours: a response's metrics, and its messages with their ids."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest

from tests.support.scripted.engine import Die, Script
from tests.support.served import ANSWER, THOUGHT, ids, script, served

BOTH = {"include": ["metrics", "messages"]}


def ids_of(messages: list[dict[str, Any]]) -> list[int]:
    return [token_id for message in messages for token_id in message["tokens"]]


def test_messages_are_the_prompt_and_the_output_as_the_engine_had_them() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            made = (await s.client.create(**BOTH)).json()
            assert ids_of(made["input_messages"]) == s.prompt()
            assert ids_of(made["output_messages"]) == list(ids(THOUGHT))
            assert {m["type"] for m in made["input_messages"]} == {"raw_message_tokens"}
            assert [m["message"] for m in made["output_messages"]] == [
                "<|channel|>analysis<|message|>They greet me.<|end|>",
                "<|start|>assistant<|channel|>final<|message|>Hello there, friend.<|return|>",
            ]
            assert made["input_messages"][-1]["message"] == "<|start|>assistant"

    asyncio.run(story())


def test_metrics_are_those_of_the_run() -> None:
    async def story() -> None:
        async with served("<|start|>assistant" + ANSWER) as s:
            made = (await s.client.create(include=["metrics"])).json()
            metrics, usage = made["metrics"], made["usage"]
            assert 0 <= metrics["queue_ms"] <= metrics["first_token_ms"] <= metrics["total_ms"]
            assert metrics["per_token_ms"] > 0
            assert metrics["input_tokens"] == usage["input_tokens"]
            assert metrics["output_tokens"] == usage["output_tokens"]
            (segment,) = metrics["segments"]
            assert (segment["name"], segment["kept"]) == ("free", usage["output_tokens"])
            assert metrics["repairs"] == {"stray_control": 1}
            assert made["output_messages"] is None

    asyncio.run(story())


def test_what_the_engine_measured_is_told_to_those_who_ask() -> None:
    async def story() -> None:
        async with served(replace(script(ANSWER), metrics={"ttft": 0.25})) as s:
            made = (await s.client.create(include=["metrics"])).json()
            assert [each["engine"] for each in made["metrics"]["segments"]] == [{"ttft": 0.25}]
            await s.client.create()
            assert [request.options.metrics for request in s.engine.requests] == [True, False]

    asyncio.run(story())


def test_a_stream_a_plain_reply_and_the_store_say_the_same() -> None:
    async def story() -> None:
        async with served() as s:
            events = (await s.client.create(stream=True, **BOTH)).events
            last = events[-1]["response"]
            assert ids_of(last["output_messages"]) == list(ids(ANSWER))
            assert "metrics" not in events[0]["response"]
            stored = (await s.client.get(f"/v1/responses/{last['id']}")).json()
            assert stored == last

    asyncio.run(story())


def test_a_run_that_fails_before_its_first_token_has_metrics_too() -> None:
    async def story() -> None:
        async with served(Script((Die("out of memory"),))) as s:
            last = (await s.client.create(stream=True, **BOTH)).events[-1]
            assert last["type"] == "response.failed"
            metrics = last["response"]["metrics"]
            assert (metrics["first_token_ms"], metrics["output_tokens"]) == (None, 0)
            assert metrics["segments"][0]["outcome"] == "failed"
            assert last["response"]["output_messages"] == []

    asyncio.run(story())


def test_nobody_who_does_not_ask_gets_them_and_no_header_names_them() -> None:
    async def story() -> None:
        async with served() as s:
            plain = (await s.client.create()).json()
            assert not {"metrics", "input_messages", "output_messages"} & plain.keys()
            assert "x-trt-ignored" not in (await s.client.create(**BOTH)).headers

    asyncio.run(story())


@pytest.mark.parametrize("explain", ["redacted", "off"])
def test_messages_are_refused_where_a_setting_says_so(explain: str) -> None:
    async def story() -> None:
        async with served(explain=explain) as s:
            refused = await s.client.create(**BOTH)
            assert (refused.status, refused.error["param"]) == (403, "include")
            assert refused.error["code"] == "messages_hidden"
            assert (await s.client.create(include=["metrics"])).json()["metrics"]

    asyncio.run(story())


def test_a_count_tells_no_messages_and_is_not_refused_for_them() -> None:
    async def story() -> None:
        async with served(explain="off") as s:
            body = orjson.dumps({"model": "demo", "input": "Hello.", "include": ["messages"]})
            counted = await s.client.send("POST", "/v1/responses/input_tokens", body)
            assert counted.status == 200

    asyncio.run(story())
