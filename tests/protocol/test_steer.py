"""A running response that a user's message steers: it ends, its ids stay, and a successor goes on.

Budget: 3 s on one core.
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, Any

import orjson
import pytest
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
from tests.support.sockets import Socket, connected
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


# --- over a WebSocket -------------------------------------------------------------------------


def types(socket: Socket) -> list[str]:
    """The events, one for each run of deltas."""
    return [kind for kind, _ in groupby(frame["type"] for frame in socket.frames)]


def of(socket: Socket, kind: str) -> list[Json]:
    return [frame for frame in socket.frames if frame["type"] == kind]


def steer_on(socket: Socket, response_id: str, sent: object = "Shorter.") -> None:
    socket.send({"type": "response.steer", "previous_response_id": response_id, "input": sent})


async def writing(socket: Socket, **fields: object) -> str:
    """The id of a response whose model has written and goes on."""
    count = len(of(socket, "response.created"))
    socket.create(**fields)
    await socket.until(lambda w: len(of(w, "response.created")) > count)
    await socket.until(lambda w: any(f.get("delta") == " poem" for f in w.frames))
    response_id: str = of(socket, "response.created")[-1]["response"]["id"]
    return response_id


@pytest.mark.parametrize("stored", [False, True])
def test_on_a_lane_a_successor_follows_by_itself(stored: bool) -> None:
    async def story() -> None:
        async with served(THINKING, ANSWER) as s, connected(s.app) as socket:
            given = {"store": stored, "metadata": {"a": "b"}, "stream_id": "main"}
            first = await writing(socket, input="Write.", **given)
            steer_on(socket, first)
            await socket.until(lambda w: bool(of(w, "response.completed")))
            beside = ("response.steer.accepted", "response.incomplete", "response.created")
            assert [kind for kind in types(socket) if kind in beside] == [
                "response.created",
                *beside,
            ]
            accepted = of(socket, "response.steer.accepted")[0]
            assert accepted["steer"]["previous_response_id"] == first
            assert accepted["steer"]["id"].startswith("steer_")
            ended = of(socket, "response.incomplete")[0]["response"]
            assert (ended["id"], ended["incomplete_details"]) == (first, {"reason": "steered"})
            after = of(socket, "response.completed")[0]["response"]
            assert after["previous_response_id"] == first
            assert (after["metadata"], after["store"]) == ({"a": "b"}, stored)
            assert all(frame["stream_id"] == "main" for frame in socket.frames)
            kept = [*s.prompt(0), *ids(THINKS + "<|end|>")]
            assert s.prompt()[: len(kept)] == kept
            assert s.prompt_text().endswith("<|message|>Shorter.<|end|><|start|>assistant")
            steer_on(socket, first)
            await socket.until(lambda w: bool(of(w, "response.steer.failed")))
            code = of(socket, "response.steer.failed")[0]["error"]["code"]
            assert code == "response_already_completed"

    asyncio.run(story())
