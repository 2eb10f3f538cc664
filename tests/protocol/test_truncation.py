"""A conversation that is longer than the context, and answers that are cut. Budget: 4 s."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.support import lawful
from tests.support.served import CALL, THOUGHT, WEATHER, ids, served, vocabulary

CONTEXT = 512
AUTO: dict[str, Any] = {"truncation": "auto", "max_output_tokens": 32}


def turn(number: int, words: int = 60) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": f"Question {number}." + " a" * words, "id": f"msg_u{number}"},
        {"role": "assistant", "content": f"Answer {number}.", "id": f"msg_a{number}"},
    ]


def talk(turns: int) -> list[dict[str, Any]]:
    said = [item for number in range(turns) for item in turn(number)]
    return [*said, {"role": "user", "content": "The last question.", "id": "msg_last"}]


def test_the_oldest_turns_leave_and_are_named() -> None:
    async def story() -> None:
        async with served(context_tokens=CONTEXT) as s:
            said = [{"role": "developer", "content": "Stay calm.", "id": "msg_d"}, *talk(12)]
            call = await s.client.create(input=said, instructions="Be brief.", **AUTO)
            assert call.status == 200, call.body
            assert call.json()["truncation"] == "auto"
            text = s.prompt_text()
            assert len(s.prompt()) <= CONTEXT - 32
            gone = call.headers["x-trt-truncated"].split(", ")
            turns = len(gone) // 2
            assert gone == [f"msg_{who}{n}" for n in range(turns) for who in "ua"]
            for number in range(12):
                assert (f"Question {number}." in text) == (number >= turns)
                assert (f"Answer {number}." in text) == (number >= turns)
            assert "The last question." in text
            assert "Stay calm." in text
            assert "Be brief." in text
            asks, says = (item["content"] for item in turn(0))
            one_more = ids(
                f"<|start|>user<|message|>{asks}<|end|>"
                f"<|start|>assistant<|channel|>final<|message|>{says}<|end|>"
            )
            assert len(s.prompt()) + len(one_more) > CONTEXT - 32, "no more than must"

    asyncio.run(story())


def test_what_fits_is_left_whole() -> None:
    async def story() -> None:
        async with served(context_tokens=CONTEXT) as s:
            call = await s.client.create(input=talk(2), **AUTO)
            assert "x-trt-truncated" not in call.headers
            whole = s.prompt()
            await s.client.create(input=talk(2), max_output_tokens=32)
            assert s.prompt() == whole

    asyncio.run(story())


def test_disabled_refuses_what_auto_would_cut() -> None:
    async def story() -> None:
        async with served(context_tokens=CONTEXT) as s:
            for more in ({}, {"truncation": "disabled"}, {"truncation": None}):
                call = await s.client.create(input=talk(12), **more)
                assert (call.status, call.error["code"]) == (400, "context_length_exceeded")
            assert not s.engine.requests

    asyncio.run(story())


def test_a_last_turn_that_does_not_fit_by_itself_is_refused() -> None:
    async def story() -> None:
        async with served(context_tokens=CONTEXT) as s:
            said = [*turn(0), {"role": "user", "content": "x y" * 200}, *turn(1)[1:]]
            said.append({"role": "user", "content": "a b " * 120})
            said.append({"role": "user", "content": "a b " * 150})
            call = await s.client.create(input=said, **AUTO)
            assert (call.status, call.error["code"]) == (400, "context_length_exceeded")

    asyncio.run(story())


def test_an_old_message_may_be_longer_than_the_context() -> None:
    async def story() -> None:
        async with served(context_tokens=CONTEXT) as s:
            said = talk(2)
            said[0]["content"] = "a b " * CONTEXT
            call = await s.client.create(input=said, **AUTO)
            assert call.status == 200, call.body
            assert call.headers["x-trt-truncated"] == "msg_u0, msg_a0"
            said[0]["content"] = "a b " * CONTEXT * 8
            call = await s.client.create(input=said, **AUTO)
            assert (call.status, call.error["code"]) == (400, "context_length_exceeded")

    asyncio.run(story())


def test_a_call_and_its_result_are_never_parted() -> None:
    async def story() -> None:
        async with served(context_tokens=CONTEXT) as s:
            called = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}
            late = {"type": "function_call_output", "call_id": "c", "output": "Sunny."}
            said = [
                *({"role": "user", "content": "First." + " a" * 150}, called),
                *({"role": "user", "content": "Second." + " b" * 150}, late),
                *({"role": "assistant", "content": "So."},),
                {"role": "user", "content": "Third." + " c" * 100},
            ]
            call = await s.client.create(input=said, tools=[WEATHER], **AUTO)
            assert call.status == 200, call.body
            text = s.prompt_text()
            assert "Third." in text
            assert ("Sunny." in text) == ("to=functions.weather" in text)
            assert "Second." not in text

    asyncio.run(story())


def test_what_left_a_prompt_stays_in_the_history() -> None:
    async def story() -> None:
        async with served(context_tokens=CONTEXT) as s:
            first = await s.client.create(input=talk(12), **AUTO)
            gone = first.headers["x-trt-truncated"]
            listed = await s.client.get(
                f"/v1/responses/{first.json()['id']}/input_items?limit=100&order=asc"
            )
            assert [i["id"] for i in listed.json()["data"]] == [i["id"] for i in talk(12)]
            follow = await s.client.create(previous_response_id=first.json()["id"], **AUTO)
            assert follow.status == 200
            assert follow.headers["x-trt-truncated"].startswith(gone.split(", ")[0])

    asyncio.run(story())


def test_the_count_of_a_cut_request_is_its_usage() -> None:
    async def story() -> None:
        async with served(context_tokens=CONTEXT) as s:
            fields = {"input": talk(12), **AUTO}
            body = orjson.dumps(fields)
            count = await s.client.send("POST", "/v1/responses/input_tokens", body)
            made = await s.client.create(**fields)
            assert count.json()["input_tokens"] == made.json()["usage"]["input_tokens"]

    asyncio.run(story())


def test_many_names_are_cut_short() -> None:
    async def story() -> None:
        async with served(context_tokens=CONTEXT) as s:
            call = await s.client.create(input=talk(40), **AUTO)
            names = call.headers["x-trt-truncated"].split(", ")
            assert len(names) == 33
            assert names[-1].startswith("and ")
            stream = await s.client.create(input=talk(40), stream=True, **AUTO)
            assert stream.headers["x-trt-truncated"] == call.headers["x-trt-truncated"]

    asyncio.run(story())


# --- max_output_tokens -------------------------------------------------------------------------

SNOWMAN = (
    "<|channel|>final<|message|>Look: \U0001f9d1\U0001f3fd\u200d\U0001f680 and \u2603!<|return|>"
)


@pytest.mark.parametrize("written", [THOUGHT, CALL, SNOWMAN], ids=["thought", "call", "bytes"])
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_wherever_it_is_cut_it_is_incomplete_and_says_why(written: str, stream: bool) -> None:
    """Inside a header, a call and a character of several ids too. Budget: 2 s."""

    async def story() -> None:
        async with served(written) as s:
            whole = len(ids(written))
            for tokens in range(1, whole):
                more = {"max_output_tokens": tokens, "tools": [WEATHER], "stream": stream}
                call = await s.client.create(**more)
                last = call.events[-1]["response"] if stream else call.json()
                assert last["status"] == "incomplete", tokens
                assert last["incomplete_details"] == {"reason": "max_output_tokens"}
                assert last["usage"]["output_tokens"] == tokens
                assert all(item["status"] == "completed" for item in last["output"][:-1])
                if stream:
                    lawful.check(call.events, last)
                follow = await s.client.create(previous_response_id=last["id"], tools=[WEATHER])
                assert follow.status == 200, "an incomplete response may be continued"
                text = vocabulary().text(s.prompt())
                assert "<|call|>" not in text, "a call that was cut is dropped"
            last = (await s.client.create(max_output_tokens=whole, tools=[WEATHER])).json()
            assert last["status"] == "completed"

    asyncio.run(story())
