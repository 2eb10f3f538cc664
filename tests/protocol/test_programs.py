"""Programs of the model that call the client's tools.

Budget: 20 s on one core.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from openai.types.responses import Response

from tests.support.background import ended
from tests.support.sdk_judge import accumulated, refused
from tests.support.served import ANSWER, served

Json = dict[str, Any]

PROGRAMS: Json = {"type": "programmatic_tool_calling"}
STOCK: Json = {
    "type": "function",
    "name": "stock",
    "description": "Tells how many are left.",
    "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
    "output_schema": {"type": "object", "properties": {"left": {"type": "integer"}}},
    "allowed_callers": ["programmatic"],
}
ORDER: Json = {
    "type": "function",
    "name": "order",
    "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
    "allowed_callers": ["direct", "programmatic"],
}
TOOLS = [PROGRAMS, STOCK, ORDER]
CODE = """\
import asyncio
items = ["lamp", "desk"]
found = await asyncio.gather(*(tools.stock(item=one) for one in items))
low = min(zip(items, found), key=lambda pair: pair[1]["left"])[0]
print(low, await tools.order(item=low))
"""


def program(code: str) -> str:
    return (
        "<|channel|>commentary to=functions.programmatic_tool_calling <|constrain|>json<|message|>"
        f"{json.dumps({'code': code})}<|call|>"
    )


def outputs(items: list[Json], **by_item: str) -> list[Json]:
    """What a client gives for the calls among some items."""
    return [
        {
            "type": "function_call_output",
            "call_id": one["call_id"],
            "caller": one["caller"],
            "output": by_item[json.loads(one["arguments"])["item"]],
        }
        for one in items
        if one["type"] == "function_call"
    ]


STOCKS = {"lamp": '{"left": 3}', "desk": '{"left": 1}'}


@pytest.mark.parametrize("way", ["plain", "stream", "background", "stateless"])
def test_a_program_s_calls_go_to_the_client_and_its_result_to_the_model(way: str) -> None:
    fields: Json = {"tools": TOOLS, "store": way != "stateless"}

    async def story() -> None:
        async with served(program(CODE), ANSWER, python="boxed") as s:

            async def create(**more: Any) -> Json:
                if way == "background":
                    started = (await s.client.create(background=True, **fields | more)).json()
                    return await ended(s, started["id"])
                call = await s.client.create(stream=way == "stream", **fields | more)
                assert call.status == 200, call.body
                if way != "stream":
                    return call.json()
                for event in call.events:
                    assert refused(event) is None, event
                last: Json = call.events[-1]["response"]
                assert [one["type"] for one in accumulated(call.events)] == [
                    one["type"] for one in last["output"]
                ]
                return last

            history: list[Json] = [{"role": "user", "content": "Order what is low."}]

            async def go_on(last: Json, sent: list[Json]) -> Json:
                if way == "stateless":
                    history.extend((*last["output"], *sent))
                    return await create(input=history)
                return await create(input=sent, previous_response_id=last["id"])

            first = await create(input=history)
            Response.model_validate(first)
            wrote, *calls = first["output"]
            assert (first["status"], wrote["type"], wrote["code"]) == ("completed", "program", CODE)
            assert [(one["name"], json.loads(one["arguments"])) for one in calls] == [
                ("stock", {"item": "lamp"}),
                ("stock", {"item": "desk"}),
            ]
            caller = {"type": "program", "caller_id": wrote["call_id"]}
            assert all(one["caller"] == caller for one in calls)
            second = await go_on(first, outputs(calls, **STOCKS))
            Response.model_validate(second)
            (call,) = second["output"]
            assert (call["name"], call["arguments"]) == ("order", '{"item": "desk"}')
            assert call["caller"] == caller
            third = await go_on(second, outputs([call], desk="ordered"))
            Response.model_validate(third)
            result, answer = third["output"]
            assert (result["type"], result["status"]) == ("program_output", "completed")
            assert (result["result"], result["call_id"]) == ("desk ordered\n", wrote["call_id"])
            assert answer["content"][0]["text"] == "Hello there, friend."
            assert len(s.engine.requests) == 2, "the model writes and reads once"
            prompt = s.prompt_text()
            assert '"left": 3' not in prompt, "what a program reads is no part of the prompt"
            assert prompt.endswith(
                "<|start|>functions.programmatic_tool_calling to=assistant<|channel|>commentary"
                "<|message|>desk ordered\n<|end|><|start|>assistant"
            )
            fourth = await go_on(third, [{"role": "user", "content": "Thanks"}])
            assert fourth["output"][0]["type"] == "message"
            assert "desk ordered" in s.prompt_text()
            assert '"left": 3' not in s.prompt_text()

    asyncio.run(story())
