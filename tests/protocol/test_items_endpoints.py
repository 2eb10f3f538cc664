"""`input_items` and `input_tokens`: lists in pages that the SDK takes, and counts that come true.

Budget: 3 s on one core.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from openai.types.responses import InputTokenCountResponse, ResponseItemList
from pydantic import TypeAdapter

from tests.support.asgi import JSON, Call
from tests.support.background import AT_ONCE, started
from tests.support.served import ANSWER, CALL, STALLED, THOUGHT, WEATHER, ids, served

LIST = TypeAdapter(ResponseItemList)

EVERYTHING: list[Any] = [
    {"role": "user", "content": "Hello"},
    {"role": "system", "content": [{"type": "input_text", "text": "Be brief."}]},
    {"type": "message", "role": "developer", "content": "Be kind.", "id": "msg_mine"},
    {
        "role": "user",
        "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}],
    },
    {"role": "assistant", "content": "Hi."},
    {"role": "assistant", "content": [{"type": "output_text", "text": "x"}], "phase": "commentary"},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"type": "reasoning", "summary": [], "content": [{"type": "text", "text": "Hm."}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "id": "rs_1"},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "Sunny."},
    {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "text", "text": "Wet."}]},
    {"type": "custom_tool_call", "call_id": "c3", "name": "patch", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "c3", "output": "done"},
    {"role": "user", "content": "And?"},
]


def listed(call: Call) -> dict[str, Any]:
    assert call.status == 200, call.body
    body: dict[str, Any] = call.json()
    LIST.validate_json(call.body)
    return body


async def items(client: Any, response_id: str, query: str = "") -> dict[str, Any]:
    return listed(await client.get(f"/v1/responses/{response_id}/input_items?{query}"))


def test_every_kind_of_item_is_listed_as_the_sdk_knows_it() -> None:
    async def story() -> None:
        async with served() as s:
            made = (await s.client.create(input=EVERYTHING)).json()
            body = await items(s.client, made["id"], "limit=100&order=asc")
            data = body["data"]
            kinds = [item.get("type", "message") for item in EVERYTHING]
            assert [item["type"] for item in data] == kinds
            parsed = LIST.validate_python(body).data
            assert [item.type for item in parsed] == kinds
            for sent, item in zip(EVERYTHING, data, strict=True):
                assert item["id"]
                assert item.get("status") == "completed"
                if item["type"] == "message":
                    kind = "output_text" if sent["role"] == "assistant" else "input_text"
                    assert {p["type"] for p in item["content"]} <= {kind, "refusal"}
                assert sent.get("id") in (None, item["id"])
            assert data[3]["content"] == [
                {"type": "input_text", "text": "a"},
                {"type": "input_text", "text": "b"},
            ]

    asyncio.run(story())


def test_a_string_is_listed_as_the_message_that_it_is() -> None:
    async def story() -> None:
        async with served() as s:
            made = (await s.client.create(input="Hello")).json()
            body = await items(s.client, made["id"])
            (item,) = body["data"]
            assert (item["role"], item["content"]) == (
                "user",
                [{"type": "input_text", "text": "Hello"}],
            )
            assert (body["first_id"], body["last_id"]) == (item["id"], item["id"])
            assert body["has_more"] is False
            assert await items(s.client, made["id"]) == body, "ids do not change"

    asyncio.run(story())


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_follow_each_other_without_gap_or_repeat(order: str) -> None:
    async def story() -> None:
        async with served() as s:
            said = [{"role": "user", "content": str(n)} for n in range(50)]
            made = (await s.client.create(input=said)).json()
            seen: list[str] = []
            after = ""
            while True:
                body = await items(s.client, made["id"], f"order={order}&limit=7{after}")
                texts = [item["content"][0]["text"] for item in body["data"]]
                assert body["first_id"] == body["data"][0]["id"]
                assert body["last_id"] == body["data"][-1]["id"]
                seen += texts
                if not body["has_more"]:
                    break
                assert len(texts) == 7
                after = f"&after={body['last_id']}"
            expected = [str(n) for n in range(50)]
            assert seen == (expected if order == "asc" else expected[::-1])
            default = await items(s.client, made["id"])
            assert [i["content"][0]["text"] for i in default["data"]] == expected[:29:-1]

    asyncio.run(story())


def test_only_what_the_request_itself_brought_is_listed() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            first = (await s.client.create(input="One")).json()
            second = (await s.client.create(input="Two", previous_response_id=first["id"])).json()
            body = await items(s.client, second["id"])
            assert [item["content"][0]["text"] for item in body["data"]] == ["Two"]
            third = (await s.client.create(input=[], previous_response_id=second["id"])).json()
            body = await items(s.client, third["id"])
            assert body == {
                "object": "list",
                "data": [],
                "first_id": "",
                "last_id": "",
                "has_more": False,
            }

    asyncio.run(story())


@pytest.mark.parametrize(
    ("query", "param"),
    [
        *[(f"limit={n}", "limit") for n in ("0", "101", "-1", "x", "1.0", "", "9" * 30, "%C2%B2")],
        *[("order=up", "order"), ("order=", "order"), ("after=msg_unknown", "after")],
    ],
)
def test_a_page_that_there_is_not_is_refused_by_name(query: str, param: str) -> None:
    async def story() -> None:
        async with served() as s:
            made = (await s.client.create()).json()
            call = await s.client.get(f"/v1/responses/{made['id']}/input_items?{query}")
            assert (call.status, call.error["param"]) == (400, param)

    asyncio.run(story())


def test_items_of_what_has_not_ended_are_not_there_yet() -> None:
    async def story() -> None:
        async with served(STALLED, manual=True, **AT_ONCE) as s:
            response_id = (await started(s))["id"]
            call = await s.client.get(f"/v1/responses/{response_id}/input_items")
            assert (call.status, call.error["code"]) == (409, "response_in_progress")
            assert call.headers["retry-after"] == "2"
            call = await s.client.get("/v1/responses/resp_x/input_items?include=a")
            assert (call.status, call.error["code"]) == (404, "not_found")

    asyncio.run(story())


# --- counting ---------------------------------------------------------------------------------


async def counted(client: Any, **fields: Any) -> int:
    body = orjson.dumps(fields)
    call = await client.send("POST", "/v1/responses/input_tokens", body)
    assert call.status == 200, call.body
    told = InputTokenCountResponse.model_validate_json(call.body)
    assert call.json().keys() == {"object", "input_tokens"}
    return told.input_tokens


ASKED: list[dict[str, Any]] = [
    {"input": "Hello"},
    {"input": EVERYTHING},
    {"input": "Hello", "instructions": "Be kind.", "tools": [WEATHER]},
    {"input": "Hello", "reasoning": {"effort": "high"}, "max_output_tokens": 5},
    {"input": "Hello", "text": {"verbosity": "low"}, "parallel_tool_calls": None},
]


@pytest.mark.parametrize("fields", ASKED, ids=range(len(ASKED)))
def test_the_count_is_the_usage_of_the_same_request(fields: dict[str, Any]) -> None:
    async def story() -> None:
        async with served(CALL if "tools" in fields else ANSWER, ANSWER) as s:
            count = await counted(s.client, **fields)
            assert await counted(s.client, model="demo", **fields) == count
            made = (await s.client.create(**fields)).json()
            assert made["usage"]["input_tokens"] == count == len(s.prompt())
            more = fields | {"previous_response_id": made["id"]}
            count = await counted(s.client, **more)
            made = (await s.client.create(**more)).json()
            assert made["usage"]["input_tokens"] == count

    asyncio.run(story())


def test_counting_generates_and_keeps_nothing() -> None:
    async def story() -> None:
        async with served() as s:
            await counted(s.client, input="Hello", store=True, background=True, stream=True)
            assert not s.engine.requests
            assert len(s.runs) == 0

    asyncio.run(story())


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({}, 400, "input"),
        ({"input": None, "model": None}, 400, "input"),
        ({"input": []}, 400, "input"),
        ({"input": 5}, 400, "input"),
        ({"input": [{"role": "x", "content": ""}]}, 400, "input[0].role"),
        ({"input": "a", "model": "other"}, 404, "model"),
        ({"input": "a", "previous_response_id": "resp_x"}, 404, "previous_response_id"),
        ({"input": "a", "conversation": "conv_1"}, 404, "conversation"),
        ({"input": "a " * 3000}, 400, "input"),
    ],
)
def test_what_cannot_be_counted_is_refused_by_name(
    fields: dict[str, Any], status: int, param: str | None
) -> None:
    async def story() -> None:
        async with served(context_tokens=2048) as s:
            body = orjson.dumps(fields)
            call = await s.client.send("POST", "/v1/responses/input_tokens", body)
            assert (call.status, call.error["param"]) == (status, param), call.body

    asyncio.run(story())


def test_a_count_needs_json_and_tells_what_it_ignores() -> None:
    async def story() -> None:
        async with served() as s:
            call = await s.client.send(
                "POST", "/v1/responses/input_tokens", b"{}", JSON | {"content-type": "text/plain"}
            )
            assert call.status == 415
            call = await s.client.send(
                "POST", "/v1/responses/input_tokens", b'{"input": "a", "personality": "x"}'
            )
            assert call.headers["x-trt-ignored"] == "personality"
            assert call.json()["input_tokens"] > len(ids("a"))

    asyncio.run(story())
