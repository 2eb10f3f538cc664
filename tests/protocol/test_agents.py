"""A coding agent's requests, in their shape and size: three turns, all replayed each time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson

from tests.support import lawful
from tests.support.asgi import JSON
from tests.support.replies import check_streamed
from tests.support.scripted.engine import Script
from tests.support.served import ids, script, served

if TYPE_CHECKING:
    from tests.support.asgi import Call
    from tests.support.served import Served
from tests.support.agent import FIRST, LAST, PATCH, SECOND, START, THIRD, body

HEADERS = JSON | {
    "accept": "text/event-stream",
    "session-id": "0199-a",
    "thread-id": "0199-b",
    "originator": "an_agent",
}


async def ask(s: Served, items: list[dict[str, Any]]) -> Call:
    sent = orjson.dumps(body(items))
    assert len(sent) > 36_000
    call = await s.client.send("POST", "/v1/responses", sent, HEADERS)
    assert call.status == 200, call.body[:500]
    assert call.headers["x-trt-dropped-tools"] == "web_search"
    ignored = call.headers["x-trt-ignored"].split(", ")
    assert ignored == ["client_metadata"]
    return call


def outputs_of(last: dict[str, Any], text: str) -> list[dict[str, Any]]:
    """What the agent adds: the items as they came, less what it does not keep, and its result."""
    items = [{k: v for k, v in item.items() if k != "status"} for item in last["output"]]
    call = items[-1]
    kind = f"{call['type']}_output"
    return [*items, {"type": kind, "call_id": call["call_id"], "output": text}]


def test_an_agent_that_replays_everything_gets_through_its_tools_on_the_models_own_ids() -> None:
    """Budget: 4 s. Four requests of some 40 kB."""

    def cached(text: str, count: int) -> Script:
        return Script(script(text).steps, cached_tokens=count)

    async def story() -> None:
        async with served(FIRST, SECOND, THIRD, cached(LAST, 1234)) as s:
            items, seen = list(START), []
            for result in ("1 failed", "Success.", "[]"):
                call = await ask(s, items)
                last = check_streamed(call)
                assert last["status"] == "completed"
                seen.append(last)
                items += outputs_of(last, result)
            call = await ask(s, items)
            last = check_streamed(call)
            lawful_but_for_seals(call)
            assert last["output"][-1]["content"][0]["text"] == "Fixed `src/main.rs:42`."
            assert last["usage"]["input_tokens_details"]["cached_tokens"] == 1234
            kinds = [[item["type"] for item in one["output"]] for one in seen]
            assert kinds == [
                ["reasoning", "message", "function_call"],
                ["reasoning", "custom_tool_call"],
                ["reasoning", "function_call"],
            ]
            assert seen[0]["output"][1]["phase"] == "commentary"
            assert seen[1]["output"][1]["input"] == PATCH
            third = seen[2]["output"][1]
            assert (third["name"], third["namespace"]) == ("search", "mcp__notes")
            thoughts = [one["output"][0] for one in seen]
            assert all(thought["encrypted_content"] for thought in thoughts)
            assert (await s.client.get(f"/v1/responses/{last['id']}")).status == 404
            # Each turn's prompt begins with the last one's, and with what the model wrote to it.
            for earlier, written in ((0, FIRST), (1, SECOND), (2, THIRD)):
                whole = s.prompt(earlier) + list(ids(written))
                assert s.prompt(earlier + 1)[: len(whole)] == whole

    def lawful_but_for_seals(call: Call) -> None:
        events = call.events
        for event in events:
            for item in (event.get("item"), *event.get("response", {}).get("output", ())):
                if item is not None:
                    item.pop("encrypted_content", None)
        lawful.check(events, events[-1]["response"])

    asyncio.run(story())


def test_a_plain_answer_to_the_same_request_says_the_same() -> None:
    async def story() -> None:
        async with served(FIRST) as s:
            sent = body(START) | {"stream": False}
            call = await s.client.send("POST", "/v1/responses", orjson.dumps(sent), HEADERS)
            assert call.status == 200
            assert [tool["type"] for tool in call.json()["tools"]] == [
                *("function", "function", "function", "custom", "namespace", "tool_search")
            ]
            assert call.json()["tool_choice"] == "auto"

    asyncio.run(story())
