"""A running response that a user's message steers: it ends, its ids stay, and a successor goes on.

Budget: 3 s on one core.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
from openai.types.responses import Response

from tests.support.asgi import JSON
from tests.support.background import got
from tests.support.served import (
    ANSWER,
    Served,
    ids,
    script,
    served,
    vocabulary,
)
from trt_responses.engines.scripted.engine import Stall

if TYPE_CHECKING:
    from tests.support.asgi import Call

Json = dict[str, Any]
THINKS = "<|channel|>analysis<|message|>They want a long poem"
THINKING = script(THINKS, Stall())
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
RUNS = "<|channel|>analysis to=python code<|message|>while True: pass<|call|>"


def steer(s: Served, response_id: str, **fields: object) -> Call:
    body = orjson.dumps({"input": "Shorter."} | fields)
    return s.client.open("POST", f"/v1/responses/{response_id}/steer", body, JSON)


def begun(call: Call) -> bool:
    """Whether the model writes."""
    return any(event["type"].endswith(".delta") for event in call.events)


async def written(s: Served, text: str) -> Call:
    """A stream whose model has written this much and goes on."""
    call = s.client.ask(stream=True)
    await call.until(lambda c: text in "".join(e.get("delta", "") for e in c.events))
    return call


def test_a_stream_ends_steered_and_its_ids_and_the_message_begin_the_next_prompt() -> None:
    async def story() -> None:
        async with served(THINKING, ANSWER) as s:
            stream = await written(s, "long poem")
            first = stream.events[0]["response"]["id"]
            reply = await (steer(s, first)).done()
            await stream.done()
            last = stream.events[-1]
            assert last["type"] == "response.incomplete"
            assert last["response"]["incomplete_details"] == {"reason": "steered"}
            assert last["response"]["output"][0]["status"] == "incomplete"
            after = reply.json()
            Response.model_validate_json(reply.body, strict=True)
            assert (after["status"], after["previous_response_id"]) == ("completed", first)
            assert after["output"][0]["content"][0]["text"] == "Hello there, friend."
            kept = [*s.prompt(0), *ids(THINKS)]
            assert s.prompt()[: len(kept)] == kept
            assert vocabulary().text(s.prompt()[len(kept) :]) == (
                "<|end|><|start|>user<|message|>Shorter.<|end|><|start|>assistant"
            )
            stored = await got(s, first)
            assert stored["incomplete_details"] == {"reason": "steered"}

    asyncio.run(story())
