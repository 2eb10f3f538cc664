"""Clients that leave, at every stage of what they asked for and through every API.

The engine's work ends, its place is free for the next one, and nothing is stored of an answer that
did not come.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import until
from tests.support.scripted.engine import Script, Stall
from tests.support.served import ANSWER, KEYED, THOUGHT, WEATHER, Served, script, served
from tests.support.sockets import Socket, connected
from tests.support.stores import memory
from tests.support.views import CHAT_TOOL, HELLO, MESSAGES_TOOL

if TYPE_CHECKING:
    from tests.support.asgi import Call

Json = dict[str, Any]

STAGES: dict[str, Script] = {
    "before the first token": Script((Stall(),)),
    "in a header": script("<|channel|>ana", Stall()),
    "in the thought": script("<|channel|>analysis<|message|>They ask for", Stall()),
    "behind the thought": script("<|channel|>analysis<|message|>Weather.<|end|>", Stall()),
    "in a call's arguments": script(
        "<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json"
        '<|message|>{"city": "Be',
        Stall(),
    ),
    "in the answer": script("<|channel|>final<|message|>Hold on", Stall()),
}
OF_A_SUMMARY: dict[str, Script] = {
    "before the first token": Script((Stall(),)),
    "in the thought": script("They ask for", Stall()),
}
"""Of a compaction: what opens its thought is forced."""
RESPONSE: Json = {"input": [HELLO], "tools": [WEATHER]}
CHAT: Json = {"messages": [HELLO], "tools": [CHAT_TOOL]}
MESSAGE: Json = {"messages": [HELLO], "tools": [MESSAGES_TOOL], "max_tokens": 1000}
STREAM = {"stream": True}
SHOWN = {"thinking": {"type": "adaptive"}}
VIEWS: dict[str, tuple[str, Json]] = {
    "Responses": ("/v1/responses", RESPONSE),
    "Responses, streamed": ("/v1/responses", RESPONSE | STREAM),
    "Responses, unstored": ("/v1/responses", RESPONSE | STREAM | {"store": False}),
    "Responses, sealed": (
        "/v1/responses",
        RESPONSE | STREAM | {"include": ["reasoning.encrypted_content"], "store": False},
    ),
    "conversation": ("/v1/responses", RESPONSE | STREAM | {"conversation": "?"}),
    "compact": ("/v1/responses/compact", RESPONSE),
    "chat": ("/v1/chat/completions", CHAT),
    "chat, streamed": ("/v1/chat/completions", CHAT | STREAM),
    "Messages": ("/v1/messages", MESSAGE),
    "Messages, streamed": ("/v1/messages", MESSAGE | SHOWN | STREAM),
}


async def written(s: Served, stage: Script) -> None:
    """Until the engine has written all that it has to, and stands still."""
    said = len(stage.steps) - 1
    await until(lambda: bool(s.engine.requests) and s.last.state == "running")
    await until(lambda: s.last.steps_made >= said)


def opened(s: Served, path: str, body: Json, talk: str) -> Call:
    if "conversation" in body:
        body = body | {"conversation": talk}
    return s.client.open("POST", path, orjson.dumps({"model": "demo"} | body))


@pytest.mark.parametrize("view", VIEWS)
def test_a_client_may_leave_at_every_stage(view: str) -> None:
    path, body = VIEWS[view]
    stages = OF_A_SUMMARY if view == "compact" else STAGES

    async def story() -> None:
        store = memory()
        async with served(
            *stages.values(), ANSWER, store=store, max_running=1, max_batch=1, **KEYED
        ) as s:
            talk = (await s.client.send("POST", "/v1/conversations", b"{}")).json()["id"]
            for number, (name, stage) in enumerate(stages.items(), 1):
                call = opened(s, path, body, talk)
                await until(lambda n=number: len(s.engine.requests) == n)  # type: ignore[misc]
                await written(s, stage)
                call.hang_up()
                await call.done()
                assert s.last.state == "aborted", name
                assert (len(s.runs), len(store)) == (0, 1), name  # the conversation alone
            items = await s.client.get(f"/v1/conversations/{talk}/items")
            assert items.json()["data"] == []
            last = await opened(s, path, body, talk).done()
            assert last.status == 200, "the place in the engine is free, and so is the conversation"

    asyncio.run(story())


@pytest.mark.parametrize("view", [name for name in VIEWS if "stream" in VIEWS[name][1]])
def test_a_client_that_leaves_behind_the_end_changes_nothing(view: str) -> None:
    path, body = VIEWS[view]

    async def story() -> None:
        store = memory()
        async with served(THOUGHT, store=store, **KEYED) as s:
            talk = (await s.client.send("POST", "/v1/conversations", b"{}")).json()["id"]
            call = opened(s, path, body, talk)
            ends = (b"response.completed", b"[DONE]", b"message_stop")
            await call.until(lambda c: any(end in c.body for end in ends))
            call.hang_up()
            await call.done()
            assert s.last.state == "finished"
            assert len(s.runs) == 0
            stored = path == "/v1/responses" and body.get("store") is not False
            assert len(store) == 1 + stored
            items = await s.client.get(f"/v1/conversations/{talk}/items")
            assert len(items.json()["data"]) == (3 if "conversation" in body else 0)

    asyncio.run(story())


def test_a_connection_may_end_at_every_stage_of_its_lanes() -> None:
    async def story() -> None:
        store = memory()
        async with served(
            *STAGES.values(), ANSWER, store=store, max_running=1, max_batch=1, **KEYED
        ) as s:
            for number, (name, stage) in enumerate(STAGES.items(), 1):
                socket = Socket(s.app, {}, "/v1/responses")
                socket.create(**RESPONSE)
                await until(lambda n=number: len(s.engine.requests) == n)  # type: ignore[misc]
                socket.create(**RESPONSE)  # waits in its lane
                socket.create(**RESPONSE, stream_id="b")  # waits for its place in the engine
                await written(s, stage)
                await until(lambda: len(s.runs) == 2)
                socket.leave()
                await socket.done()
                assert s.last.state == "aborted", name
                assert (len(s.engine.requests), len(s.runs), len(store)) == (number, 0, 0), name
            async with connected(s.app) as again:
                frames = await again.answer(**RESPONSE)
                assert frames[-1]["type"] == "response.completed"
            assert len(store) == 1, "what was whole is kept"

    asyncio.run(story())


@pytest.mark.parametrize("lane", ["idle", "refused", "warm", "behind the end"])
def test_a_connection_may_end_while_nothing_is_made(lane: str) -> None:
    async def story() -> None:
        store = memory()
        async with served(ANSWER, store=store, **KEYED) as s:
            socket = Socket(s.app, {}, "/v1/responses")
            if lane == "refused":
                await socket.answer(input=7)
            elif lane == "warm":
                await socket.answer(**RESPONSE, generate=False, store=False)
            elif lane == "behind the end":
                await socket.answer(**RESPONSE)
            socket.leave()
            await socket.done()
            assert len(s.runs) == 0
            assert len(store) == (lane == "behind the end")

    asyncio.run(story())


def test_a_connection_may_end_in_a_warm_up() -> None:
    async def story() -> None:
        async with served(STAGES["before the first token"], ANSWER, max_running=1) as s:
            socket = Socket(s.app, {}, "/v1/responses")
            socket.create(**RESPONSE, generate=False)
            await until(lambda: len(s.engine.requests) == 1)
            socket.leave()
            await socket.done()
            assert s.last.state == "aborted"
            assert (await s.client.create()).json()["status"] == "completed"

    asyncio.run(story())
