"""A running response that a user's message steers: it ends, its ids stay, and a successor goes on.

Budget: 3 s on one core.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from openai.types.beta import (
    BetaResponseSteerAcceptedEvent,
    BetaResponseSteerFailedEvent,
    BetaResponseSteerPendingEvent,
)
from openai.types.responses import Response

from tests.support.asgi import JSON
from tests.support.background import AT_ONCE, ended, got, started
from tests.support.scripted.engine import Stall
from tests.support.scripted_tool import Gate, ScriptedTool
from tests.support.sdk_judge import refused
from tests.support.served import (
    ANSWER,
    CALL,
    WEATHER,
    Served,
    ids,
    result,
    script,
    served,
    vocabulary,
)
from tests.support.sockets import Socket, connected
from tests.support.turns import turn
from trt_responses.stores.memory.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pydantic import BaseModel

    from tests.support.asgi import Call
    from trt_responses.store import Record

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


STEERING: dict[str, type[BaseModel]] = {
    "response.steer.accepted": BetaResponseSteerAcceptedEvent,
    "response.steer.failed": BetaResponseSteerFailedEvent,
    "response.steer.pending": BetaResponseSteerPendingEvent,
}


def departures(events: list[Json]) -> list[str]:
    """What a strict client refuses of a stream."""
    faults = []
    for event in events:
        if kind := STEERING.get(event["type"]):
            kind.model_validate_json(orjson.dumps(event), strict=True)
        elif (fault := refused(event)) is not None:
            faults.append(fault)
    return faults


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
            assert departures(stream.events) == []
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


def test_a_plain_reply_ends_steered_and_the_successor_may_be_a_stream() -> None:
    async def story() -> None:
        async with served(THINKING, ANSWER) as s:
            plain = s.client.ask()
            while not s.engine.requests:
                await turn()
            first = next(run.id for run, _ in s.runs.leased())
            reply = await (
                steer(s, first, input=[{"role": "user", "content": "Stop."}], stream=True)
            ).done()
            ending = (await plain.done()).json()
            assert ending["incomplete_details"] == {"reason": "steered"}
            kinds = [event["type"] for event in reply.events]
            assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
            assert reply.events[0]["response"]["previous_response_id"] == first
            assert departures(reply.events) == []
            Response.model_validate_json(orjson.dumps(ending), strict=True)

    asyncio.run(story())


def test_in_the_background_the_successor_is_there_before_the_reply_and_has_the_settings() -> None:
    async def story() -> None:
        async with served(THINKING, ANSWER, max_background=1, **AT_ONCE) as s:
            first = (await started(s, metadata={"a": "b"}))["id"]
            while (await got(s, first))["status"] != "in_progress":
                await turn()
            body = (await steer(s, first).done()).json()
            assert (body["status"], body["background"]) == ("queued", True)
            assert (await got(s, first))["incomplete_details"] == {"reason": "steered"}
            last = await ended(s, body["id"])
            assert (last["status"], last["metadata"]) == ("completed", {"a": "b"})
            Response.model_validate_json(orjson.dumps(last), strict=True)
            assert s.prompt_text().endswith("<|message|>Shorter.<|end|><|start|>assistant")

    asyncio.run(story())


def test_a_tool_that_runs_is_interrupted_and_the_model_reads_that() -> None:
    async def story() -> None:
        gate = Gate()
        tool = ScriptedTool(gate)
        async with served(RUNS, ANSWER, tools=[tool]) as s:
            stream = s.client.ask(stream=True, tools=[CODE])
            await gate.reached.wait()
            first = stream.events[0]["response"]["id"]
            reply = await steer(s, first).done()
            await stream.done()
            assert tool.broken_off == 1
            last = stream.events[-1]["response"]
            assert last["incomplete_details"] == {"reason": "steered"}
            assert last["output"][0]["status"] == "failed"
            assert reply.json()["status"] == "completed"
            kept = [*s.prompt(0), *ids(RUNS)]
            assert s.prompt()[: len(kept)] == kept
            assert "The user interrupted this call" in s.prompt_text()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"conversation": "conv"}, "steering_not_supported"),
        ({"store": False}, "steering_not_supported"),
        ({"context_management": [{"type": "compaction"}]}, "steering_not_supported"),
    ],
)
def test_what_cannot_be_steered_goes_on(fields: Json, code: str) -> None:
    async def story() -> None:
        async with served(THINKING) as s:
            if "conversation" in fields:
                made = await s.client.send("POST", "/v1/conversations", b"{}", JSON)
                fields["conversation"] = made.json()["id"]
            stream = s.client.ask(stream=True, **fields)
            await stream.until(lambda c: b"poem" in c.body)
            first = stream.events[0]["response"]["id"]
            refused = await steer(s, first).done()
            assert (refused.status, refused.error["code"]) == (400, code)
            assert not stream.ended
            stream.hang_up()
            await stream.done()

    asyncio.run(story())


def test_messages_are_refused_by_their_place_and_ended_responses_by_a_code() -> None:
    async def story() -> None:
        async with served(CALL) as s:
            ended = (await s.client.create()).json()["id"]
            for sent, param in (
                ([], "input"),
                ([{"role": "developer", "content": "x"}], "input[0]"),
                ([{"role": "user", "content": "x"}, result("call_1")], "input[1]"),
                (7, "input"),
            ):
                refused = await steer(s, ended, input=sent).done()
                assert (refused.status, refused.error["param"]) == (400, param), sent
            assert (await steer(s, ended, model="x").done()).error["param"] == "model"
            gone = await steer(s, ended).done()
            assert (gone.status, gone.error["code"]) == (409, "response_already_completed")
            unknown = await steer(s, "resp_unknown").done()
            assert (unknown.status, unknown.error["code"]) == (404, "not_found")

    asyncio.run(story())


def test_a_resumable_stream_is_steered_with_a_plain_reply() -> None:
    async def story() -> None:
        async with served(THINKING, ANSWER) as s:
            stream = s.client.ask(stream=True, stream_options={"resumable_seconds": 9})
            await stream.until(begun)
            first = stream.events[0]["response"]["id"]
            reply = (await steer(s, first).done()).json()
            assert (reply["status"], reply["previous_response_id"]) == ("completed", first)
            await stream.done()
            assert stream.events[-1]["type"] == "response.incomplete"

    asyncio.run(story())


IMAGE = [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x/y.png"}]}]


@pytest.mark.parametrize(
    "sent",
    [IMAGE, "word " * 500, "word " * 350],
    ids=["an image", "too long", "too long behind the prompt"],
)
def test_a_message_that_no_successor_could_read_ends_nothing(sent: object) -> None:
    async def story() -> None:
        async with (
            served(THINKING, THINKING, ANSWER, context_tokens=400, **AT_ONCE) as s,
            connected(s.app) as socket,
        ):
            stream = await written(s, "long poem")
            first = stream.events[0]["response"]["id"]
            refusal = await steer(s, first, input=sent).done()
            assert (refusal.status, refusal.error["param"][:5]) == (400, "input")
            assert not stream.ended
            on_socket = await writing(socket, input="Write.")
            steer_on(socket, on_socket, sent)
            await socket.until(lambda w: bool(of(w, "response.steer.failed")))
            assert of(socket, "response.steer.failed")[0]["error"]["code"] == "invalid_input"
            steer_on(socket, on_socket)
            await socket.until(lambda w: bool(of(w, "response.completed")))
            stream.hang_up()
            await stream.done()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("limits", "status"),
    [({"requests": 1}, 429), ({"tokens": 72}, 429), ({}, 503)],
    ids=["requests", "tokens", "drain"],
)
def test_a_successor_that_would_be_refused_ends_nothing(
    limits: dict[str, int], status: int
) -> None:
    async def story() -> None:
        settings: Json = {f"owner_{name}_per_minute": most for name, most in limits.items()}
        async with (
            served(THINKING, THINKING, ANSWER, drain_s=9, **settings) as s,
            connected(s.app) as socket,
        ):
            stream = await written(s, "long poem")
            first = stream.events[0]["response"]["id"]
            if not limits:
                on_socket = await writing(socket, input="Write.")
                s.drain()
                steer_on(socket, on_socket)
                await socket.until(lambda w: bool(of(w, "response.steer.failed")))
                error = of(socket, "response.steer.failed")[0]["error"]
                assert error["code"] == "successor_creation_failed"
                assert not of(socket, "response.incomplete")
            refusal = await steer(s, first).done()
            assert refusal.status == status
            assert not stream.ended
            stream.hang_up()
            await stream.done()

    asyncio.run(story())


def test_of_two_messages_at_once_one_has_the_successor() -> None:
    async def story() -> None:
        async with served(THINKING, ANSWER) as s:
            stream = await written(s, "long poem")
            first = stream.events[0]["response"]["id"]
            replies = [await call.done() for call in (steer(s, first), steer(s, first))]
            assert [reply.status for reply in replies] == [200, 409]
            assert replies[1].error["code"] == "response_not_active"
            await stream.done()

    asyncio.run(story())


def test_a_repeated_steering_with_its_key_is_one() -> None:
    async def story() -> None:
        async with served(THINKING, ANSWER) as s:
            stream = await written(s, "long poem")
            path = f"/v1/responses/{stream.events[0]['response']['id']}/steer"
            keyed = {**JSON, "idempotency-key": "k"}
            sent = [s.client.open("POST", path, b'{"input": "No."}', keyed) for _ in range(2)]
            replies = [(await call.done()).json()["id"] for call in sent]
            assert replies[0] == replies[1]
            assert len(s.engine.requests) == 2
            await stream.done()

    asyncio.run(story())


# --- over a WebSocket -------------------------------------------------------------------------


def types(socket: Socket) -> list[str]:
    """The events, one for each run of deltas."""
    return [kind for kind, _ in groupby(frame["type"] for frame in socket.frames)]


def of(socket: Socket, kind: str) -> list[Json]:
    """The events of one kind, as a strict client takes them."""
    found = [frame for frame in socket.frames if frame["type"] == kind]
    assert departures(found) == []
    return found


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


@pytest.mark.parametrize("way", ["unstored", "stored", "resumable"])
def test_on_a_lane_a_successor_follows_by_itself(way: str) -> None:
    async def story() -> None:
        async with served(THINKING, ANSWER) as s, connected(s.app) as socket:
            stored = way != "unstored"
            given: Json = {"store": stored, "metadata": {"a": "b"}, "stream_id": "main"}
            if way == "resumable":
                given["stream_options"] = {"resumable_seconds": 9}
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
            assert departures(socket.frames) == []
            kept = [*s.prompt(0), *ids(THINKS + "<|end|>")]
            assert s.prompt()[: len(kept)] == kept
            assert s.prompt_text().endswith("<|message|>Shorter.<|end|><|start|>assistant")
            steer_on(socket, first)
            await socket.until(lambda w: bool(of(w, "response.steer.failed")))
            code = of(socket, "response.steer.failed")[0]["error"]["code"]
            assert code == "response_already_completed"

    asyncio.run(story())


class SlowStore(MemoryStore):
    """Stores the first response when the test says so: until then it has not ended."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def put(self, record: Record) -> None:
        self.reached.set()
        await self.opened.wait()
        await super().put(record)


@asynccontextmanager
async def at_its_end(
    *texts: str, **fields: object
) -> AsyncIterator[tuple[Served, Socket, SlowStore, str]]:
    """A response of which all is written, and that has not ended."""
    store = SlowStore()
    async with served(*texts, store=store) as s, connected(s.app) as socket:
        socket.create(**({"input": "Hello"} | fields))
        await store.reached.wait()
        yield s, socket, store, of(socket, "response.created")[0]["response"]["id"]


def test_behind_calls_of_the_client_it_waits_for_their_outputs() -> None:
    async def story() -> None:
        asked = {"input": "Weather?", "tools": [WEATHER]}
        async with at_its_end(CALL, ANSWER, **asked) as (s, socket, store, first):
            steer_on(socket, first)
            await socket.until(lambda w: bool(of(w, "response.steer.accepted")))
            store.opened.set()
            await socket.until(lambda w: bool(of(w, "response.steer.pending")))
            ended, pending = socket.frames[-2:]
            call = ended["response"]["output"][-1]
            steer = of(socket, "response.steer.accepted")[0]["steer"]
            assert (ended["type"], pending["steer"]) == ("response.completed", steer)
            assert pending["reason"] == "waiting_for_required_input"
            assert pending["required_input"] == [
                {"type": "function_call_output", "call_id": call["call_id"], "name": "weather"}
            ]
            steer_on(socket, first, [{"role": "user", "content": "In Rome."}])
            await socket.until(lambda w: len(of(w, "response.steer.pending")) == 2)
            socket.create(previous_response_id=first, input=[result(call["call_id"])])
            await socket.until(lambda w: len(of(w, "response.completed")) == 2)
            text = s.prompt_text()
            assert text.index("Shorter.") < text.index("In Rome.") < text.index("Sunny.")

    asyncio.run(story())


def test_an_end_that_came_first_is_gone_on_from_all_the_same() -> None:
    async def story() -> None:
        async with at_its_end(ANSWER) as (s, socket, store, first):
            for text in ("Shorter.", "Louder."):
                steer_on(socket, first, text)
            await socket.until(lambda w: len(of(w, "response.steer.accepted")) == 2)
            store.opened.set()
            await socket.until(lambda w: len(of(w, "response.completed")) == 2)
            assert of(socket, "response.created")[1]["response"]["previous_response_id"] == first
            assert s.prompt_text().endswith(
                "Shorter.<|end|><|start|>user<|message|>Louder.<|end|><|start|>assistant"
            )

    asyncio.run(story())


def test_a_failed_response_and_a_refused_successor_give_the_input_back() -> None:
    async def story() -> None:
        sent = [{"role": "user", "content": "No. " * 40}]
        async with at_its_end(ANSWER) as (s, socket, store, first):
            steer_on(socket, first, sent)
            await socket.until(lambda w: bool(of(w, "response.steer.accepted")))
            s.drain()
            store.opened.set()
            await socket.until(lambda w: bool(of(w, "response.steer.failed")))
            given_back = of(socket, "response.steer.failed")[0]
            assert given_back["error"]["code"] == "successor_creation_failed"
            accepted = of(socket, "response.steer.accepted")[0]["steer"]
            assert given_back["steer"] == accepted | {"input": [{"type": "message"} | sent[0]]}

    asyncio.run(story())


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"previous_response_id": "resp_1", "input": "x"}, "response_not_found"),
        ({"previous_response_id": "resp_1", "input": []}, "invalid_input"),
        ({"previous_response_id": "resp_1", "input": [result("c")]}, "invalid_input"),
        ({"previous_response_id": "resp_1", "input": "x", "stream_id": "main"}, "invalid_input"),
        ({"input": "x"}, "invalid_input"),
        ({"previous_response_id": "resp_1", "input": None}, "invalid_input"),
    ],
)
def test_events_that_steer_nothing_give_the_input_back(sent: Json, code: str) -> None:
    async def story() -> None:
        async with served() as s, connected(s.app) as socket:
            socket.send({"type": "response.steer"} | sent)
            await socket.until(lambda w: bool(w.frames))
            (frame,) = socket.frames
            assert (frame["type"], frame["error"]["code"]) == ("response.steer.failed", code)
            assert frame["steer"]["input"] == (sent["input"] or "")
            assert "id" not in frame["steer"]

    asyncio.run(story())
