"""WebSocket at `/v1/responses`: lanes, continuation, refusals, and how a connection ends. Each
frame is judged by the SDK's type as it comes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import until
from tests.support.scripted.engine import Die, Script
from tests.support.served import (
    ANSWER,
    CALL,
    LONG,
    STALLED,
    THOUGHT,
    WEATHER,
    Served,
    ids,
    result,
    served,
    squared,
    wide,
)
from tests.support.sockets import Socket, connected, is_last
from tests.support.stores import FAULTS, BrokenStore
from tests.support.ticks import Ticks
from tests.support.turns import turn
from trt_responses.apis.websocket.connection import IDLE_S, REFUSALS, WAITING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Json = dict[str, Any]
HELLO = {"type": "response.create", "model": "demo", "input": "Hello"}
DIES = Script((*((i,) for i in ids("<|channel|>final<|message|>Hello")), Die("burnt")))


@asynccontextmanager
async def talking(*written: Any, **settings: Any) -> AsyncIterator[tuple[Served, Socket]]:
    async with served(*written, **settings) as s, connected(s.app) as socket:
        yield s, socket


def types(frames: list[Json]) -> list[str]:
    return [frame["type"] for frame in frames]


def only(frames: list[Json], stream_id: str) -> list[Json]:
    return [frame for frame in frames if frame.get("stream_id") == stream_id]


def text(frames: list[Json]) -> str:
    return "".join(f["delta"] for f in frames if f["type"] == "response.output_text.delta")


def without_ids(event: Json) -> Json:
    """An event as any other response of the same words has it."""
    changing = ("id", "item_id", "call_id", "created_at", "completed_at", "stream_id")
    whole = orjson.loads(orjson.dumps(event))

    def strip(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: strip(value) for key, value in node.items() if key not in changing}
        return [strip(value) for value in node] if isinstance(node, list) else node

    stripped: Json = strip(whole)
    return stripped


# --- events -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream_id", [None, "main"])
@pytest.mark.parametrize("said", [ANSWER, THOUGHT, CALL], ids=["answer", "thought", "call"])
def test_the_events_are_those_of_a_stream(said: str, stream_id: str | None) -> None:
    async def story() -> None:
        fields: Json = {"input": "Hello", "tools": [WEATHER]}
        async with talking(said) as (s, socket):
            lane = {"stream_id": stream_id} if stream_id else {}
            frames = await socket.answer(**fields, **lane)
            stream = await s.client.create(stream=True, **fields)
            assert [without_ids(f) for f in frames] == [without_ids(e) for e in stream.events]
            assert all(frame.get("stream_id") == stream_id for frame in frames)
            assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))

    asyncio.run(story())


def test_a_failure_behind_the_first_event_is_a_failed_response_and_the_socket_stays() -> None:
    async def story() -> None:
        async with talking(DIES, ANSWER) as (_, socket):
            frames = await socket.answer(input="Hello")
            assert types(frames)[0] == "response.created"
            assert types(frames)[-1] == "response.failed"
            assert "error" not in types(frames)
            assert text(await socket.answer(input="Again")) == "Hello there, friend."

    asyncio.run(story())


def test_what_a_reply_has_in_its_headers_stands_in_the_first_event() -> None:
    async def story() -> None:
        async with talking() as (_, socket):
            tools = [WEATHER, {"type": "web_search"}]
            first = (await socket.answer(input="Hello", user="me", tools=tools))[0]
            assert first["headers"]["x-trt-ignored"] == "user"
            assert first["headers"]["x-trt-dropped-tools"] == "web_search"

    asyncio.run(story())


# --- lanes ------------------------------------------------------------------------------------


def test_a_lane_makes_one_response_after_another_in_the_order_of_their_coming() -> None:
    async def story() -> None:
        async with talking(squared) as (s, socket):
            for number in range(20):
                socket.create(input=f"number={number};", store=False)
            await socket.until(lambda w: sum(map(is_last, w.frames)) == 20)
            assert text(socket.frames) == "".join(
                f"The square is {number * number}." for number in range(20)
            )
            assert len(s.engine.requests) == 20

    asyncio.run(story())


def test_lanes_run_beside_each_other_and_no_event_goes_astray() -> None:
    async def story() -> None:
        async with talking(squared) as (_, socket):
            for number in range(12):
                socket.create(input=f"number={number};", stream_id=f"lane-{number}")
            await socket.until(lambda w: sum(map(is_last, w.frames)) == 12)
            for number in range(12):
                frames = socket.of(f"lane-{number}")
                assert text(frames) == f"The square is {number * number}."
                assert [f["sequence_number"] for f in frames] == list(range(len(frames)))

    asyncio.run(story())


def test_as_many_as_may_are_made_at_once_and_the_others_wait() -> None:
    async def story() -> None:
        async with talking(STALLED, manual=True, websocket_running=3) as (s, socket):
            for number in range(5):
                socket.create(input="Hello", stream_id=f"{number}")
            await until(lambda: len(s.engine.requests) == 3)
            await s.clock.step(4)
            assert len(s.engine.requests) == 3

    asyncio.run(story())


def test_there_are_so_many_named_lanes_and_no_more() -> None:
    async def story() -> None:
        async with talking(websocket_lanes=2) as (_, socket):
            for lane in ("a", "b"):
                assert is_completed(await socket.answer(input="Hello", stream_id=lane))
            (refused,) = await socket.answer(input="Hello", stream_id="c")
            assert refused["error"]["code"] == "websocket_stream_limit_reached"
            assert refused["stream_id"] == "c"
            assert is_completed(await socket.answer(input="Hello", stream_id="a"))
            assert is_completed(await socket.answer(input="Hello"))

    asyncio.run(story())


def test_by_default_sixteen_are_made_at_once_on_thirty_two_named_lanes() -> None:
    async def story() -> None:
        async with talking(STALLED, manual=True) as (s, socket):
            for number in range(32):
                socket.create(input="Hello", stream_id=f"{number}")
            await until(lambda: len(s.engine.requests) == 16)
            await s.clock.step(4)
            assert len(s.engine.requests) == 16
            socket.create(input="Hello", stream_id="32")
            await socket.until(lambda w: bool(w.of("32")))
            (refused,) = socket.of("32")
            assert refused["error"]["code"] == "websocket_stream_limit_reached"

    asyncio.run(story())


def is_completed(frames: list[Json]) -> bool:
    return types(frames)[-1] == "response.completed"


# --- continuation -----------------------------------------------------------------------------


def test_the_latest_response_of_a_lane_is_continued_though_nothing_is_stored() -> None:
    async def story() -> None:
        async with talking(CALL, ANSWER) as (s, socket):
            fields: Json = {"store": False, "tools": [WEATHER]}
            first = (await socket.answer(input="Weather?", **fields))[-1]["response"]
            before = s.prompt() + list(ids(CALL))
            call = first["output"][-1]
            brought = [result(call["call_id"])]
            second = await socket.answer(input=brought, previous_response_id=first["id"], **fields)
            assert is_completed(second)
            assert s.prompt()[: len(before)] == before
            assert (await s.client.get(f"/v1/responses/{first['id']}")).status == 404

    asyncio.run(story())


def test_an_older_one_is_not_found_and_neither_is_another_connections() -> None:
    async def story() -> None:
        async with talking() as (s, socket):
            old = (await socket.answer(input="1", store=False))[-1]["response"]["id"]
            new = (await socket.answer(input="2", store=False))[-1]["response"]["id"]
            async with connected(s.app) as other:
                for where, what in ((socket, old), (other, new)):
                    (refused,) = await where.answer(input="3", previous_response_id=what)
                    assert refused["status"] == 400
                    assert refused["error"]["code"] == "previous_response_not_found"
                    assert refused["error"]["param"] == "previous_response_id"

    asyncio.run(story())


def test_a_stored_response_is_continued_from_anywhere() -> None:
    async def story() -> None:
        async with talking() as (s, socket):
            first = (await socket.answer(input="1"))[-1]["response"]["id"]
            await socket.answer(input="2")
            async with connected(s.app) as other:
                assert is_completed(await other.answer(input="3", previous_response_id=first))
            stored = await s.client.get(f"/v1/responses/{first}")
            assert stored.json()["id"] == first

    asyncio.run(story())


@pytest.mark.parametrize("fault", ["refused", "failed"])
def test_a_failure_evicts_what_it_went_on_from_on_its_own_lane_alone(fault: str) -> None:
    async def story() -> None:
        then = DIES if fault == "failed" else ANSWER
        async with talking(ANSWER, ANSWER, then, then, ANSWER) as (_, socket):
            ended = [await socket.answer(input="1", store=False, stream_id=lane) for lane in "ab"]
            a, b = (frames[-1]["response"]["id"] for frames in ended)
            wrong: Json = {} if fault == "failed" else {"top_p": 7}
            for named in (a, b):
                failed = await socket.answer(
                    input="2", store=False, stream_id="a", previous_response_id=named, **wrong
                )
                assert not is_completed(failed)
            (gone,) = await socket.answer(input="3", stream_id="a", previous_response_id=a)
            assert gone["error"]["code"] == "previous_response_not_found"
            assert is_completed(
                await socket.answer(input="3", stream_id="b", previous_response_id=b)
            )

    asyncio.run(story())


def test_a_store_that_cannot_keep_a_response_fails_it_and_nothing_goes_on_from_it() -> None:
    async def story() -> None:
        async with talking(store=BrokenStore(FAULTS[0])) as (_, socket):
            frames = await socket.answer(input="1")
            assert types(frames)[-1] == "response.failed"
            named = frames[-1]["response"]["id"]
            (gone,) = await socket.answer(input="2", previous_response_id=named, store=False)
            assert gone["error"]["code"] == "previous_response_not_found"

    asyncio.run(story())


def test_no_more_is_held_than_the_setting_allows() -> None:
    async def story() -> None:
        async with talking(websocket_bytes=20_000) as (_, socket):
            long = "word " * 2_000
            a = (await socket.answer(input=long, store=False, stream_id="a"))[-1]["response"]["id"]
            b = (await socket.answer(input=long, store=False, stream_id="b"))[-1]["response"]["id"]
            (gone,) = await socket.answer(input="2", previous_response_id=a, store=False)
            assert gone["error"]["code"] == "previous_response_not_found"
            assert is_completed(await socket.answer(input="2", previous_response_id=b))

    asyncio.run(story())


# --- warm-up ----------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
def test_a_warm_up_reads_the_prompt_and_the_next_request_needs_no_input(store: bool) -> None:
    async def story() -> None:
        async with talking() as (s, socket):
            frames = await socket.answer(input="Hello", generate=False, store=store)
            assert types(frames) == [
                "response.created",
                "response.in_progress",
                "response.completed",
            ]
            warm = frames[-1]["response"]
            assert warm["output"] == []
            assert warm["usage"]["input_tokens"] == len(s.prompt())
            assert warm["usage"]["output_tokens"] == 0
            assert s.last.options.max_tokens == 1
            before = s.prompt()
            frames = await socket.answer(previous_response_id=warm["id"], store=store)
            assert text(frames) == "Hello there, friend."
            assert s.prompt() == before

    asyncio.run(story())


def test_a_warm_up_whose_engine_dies_fails() -> None:
    async def story() -> None:
        async with talking(Script((Die("burnt"),))) as (_, socket):
            frames = await socket.answer(input="Hello", generate=False, store=False)
            assert types(frames)[-1] == "response.failed"

    asyncio.run(story())


# --- refusals ---------------------------------------------------------------------------------

BAD: list[tuple[str | Json, int, str | None, str | None]] = [
    ("", 400, "invalid_json", None),
    ("{", 400, "invalid_json", None),
    ("\ud7ff", 400, "invalid_json", None),
    ("[]", 400, "invalid_value", None),
    ("null", 400, "invalid_value", None),
    ('"response.create"', 400, "invalid_value", None),
    ("{}", 400, "missing_required_parameter", "type"),
    ({"type": None}, 400, "missing_required_parameter", "type"),
    ({"type": "response.cancel"}, 400, "invalid_value", "type"),
    ({"type": "session.update"}, 400, "invalid_value", "type"),
    ({"type": ["response.create"]}, 400, "invalid_value", "type"),
    (HELLO | {"stream_id": ""}, 400, "invalid_stream_id", "stream_id"),
    (HELLO | {"stream_id": "a b"}, 400, "invalid_stream_id", "stream_id"),
    (HELLO | {"stream_id": "a" * 257}, 400, "invalid_stream_id", "stream_id"),
    (HELLO | {"stream_id": 7}, 400, "invalid_stream_id", "stream_id"),
    (HELLO | {"stream_id": "lane\n"}, 400, "invalid_stream_id", "stream_id"),
    (HELLO | {"model": "other"}, 404, "model_not_found", "model"),
    (HELLO | {"model": None}, 400, "invalid_value", "model"),
    (HELLO | {"input": ""}, 400, "invalid_value", "input"),
    (HELLO | {"input": None}, 400, "invalid_value", "input"),
    (HELLO | {"input": 7}, 400, "invalid_value", "input"),
    (HELLO | {"input": [{"type": "computer_call"}]}, 400, "invalid_value", "input[0]"),
    (HELLO | {"generate": "no"}, 400, "invalid_value", "generate"),
    (HELLO | {"background": True}, 400, "unsupported_parameter", "background"),
    (HELLO | {"temperature": 9}, 400, "invalid_value", "temperature"),
    (HELLO | {"prompt": {"id": "p"}}, 400, "unsupported_parameter", "prompt"),
    (HELLO | {"metadata": {"k": 7}}, 400, "invalid_value", "metadata.k"),
    (HELLO | {"tools": [{"type": "web_search"}]}, 400, "unsupported_tool", "tools[0].type"),
    (HELLO | {"tool_choice": "required"}, 400, "invalid_value", "tool_choice"),
    (
        HELLO | {"previous_response_id": "resp_abc"},
        400,
        "previous_response_not_found",
        "previous_response_id",
    ),
    (HELLO | {"previous_response_id": 7}, 400, "invalid_value", "previous_response_id"),
    (HELLO | {"max_output_tokens": 0}, 400, "invalid_value", "max_output_tokens"),
    (HELLO | {"input": "word " * 200_000}, 400, "context_length_exceeded", "input"),
]


@pytest.mark.parametrize(("frame", "status", "code", "param"), BAD, ids=range(len(BAD)))
def test_a_bad_frame_is_answered_and_the_connection_goes_on(
    frame: str | Json, status: int, code: str | None, param: str | None
) -> None:
    async def story() -> None:
        async with talking() as (s, socket):
            socket.send(frame)
            await socket.until(lambda w: bool(w.frames))
            (told,) = socket.frames
            assert (told["type"], told["status"]) == ("error", status)
            assert (told["error"]["code"], told["error"]["param"]) == (code, param)
            assert told["error"]["type"] == "invalid_request_error"
            assert told["error"]["message"]
            assert not s.engine.requests
            assert is_completed((await socket.answer(input="Hello"))[1:] or socket.frames)

    asyncio.run(story())


def test_what_clients_send_of_a_stream_is_taken() -> None:
    async def story() -> None:
        async with talking() as (_, socket):
            frames = await socket.answer(input="Hello", stream=True, background=False)
            assert is_completed(frames)
            assert "headers" not in frames[0]

    asyncio.run(story())


def test_a_refusal_to_wait_for_says_for_how_long() -> None:
    async def story() -> None:
        async with talking(STALLED, max_running=1, max_waiting=0) as (s, socket):
            socket.create(input="Hello", stream_id="a")
            await until(lambda: bool(s.engine.requests))
            (refused,) = only(await socket.answer(input="Hello", stream_id="b"), "b")
            assert (refused["status"], refused["error"]["code"]) == (503, "server_busy")
            headers = refused["error"]["headers"]
            assert int(headers["retry-after"]) in range(1, 6)
            assert headers["x-should-retry"] == "true"

    asyncio.run(story())


def test_an_owners_limits_are_told_with_the_first_event_and_with_a_refusal() -> None:
    async def story() -> None:
        keyed = {"authorization": "Bearer secret"}
        async with (
            served(ANSWER, owner_requests_per_minute=1, api_keys="ann:secret") as s,
            connected(s.app, **keyed) as socket,
        ):
            first = (await socket.answer(input="Hello"))[0]
            assert first["headers"]["x-ratelimit-limit-requests"] == "1"
            assert first["headers"]["x-ratelimit-remaining-requests"] == "0"
            (refused,) = await socket.answer(input="Hello")
            error = refused["error"]
            assert (refused["status"], error["code"]) == (429, "rate_limit_exceeded")
            assert error["headers"]["x-ratelimit-remaining-requests"] == "0"
            assert f"try again in {error['headers']['retry-after']}s" in error["message"]

    asyncio.run(story())


def test_what_waits_is_bounded() -> None:
    async def story() -> None:
        async with talking(STALLED, manual=True, max_body_bytes=1_000) as (_, socket):
            for _ in range(100):
                socket.create(input="Hello")
            await socket.until(lambda w: bool(w.frames) and w.frames[-1]["type"] == "error")
            assert socket.frames[-1]["status"] == 429

    asyncio.run(story())


def test_the_number_of_what_waits_is_bounded() -> None:
    async def story() -> None:
        async with talking(STALLED, manual=True) as (_, socket):
            for _ in range(WAITING + 2):  # the first is made
                socket.create(input="Hello", stream_id="a")
            await socket.until(lambda w: is_last(w.frames[-1]) if w.frames else False)
            refused = [frame for frame in socket.frames if is_last(frame)]
            assert [frame["status"] for frame in refused] == [429]

    asyncio.run(story())


@pytest.mark.parametrize("behind", [False, True], ids=["at once", "behind a response"])
@pytest.mark.parametrize(
    "bad",
    [
        "{",
        HELLO | {"model": "other"},
        {"type": "response.steer", "previous_response_id": "resp_1", "input": "x"},
    ],
    ids=["no JSON", "model", "steer"],
)
def test_many_refusals_in_a_row_end_the_connection(bad: str | Json, behind: bool) -> None:
    async def story() -> None:
        async with talking() as (_, socket):
            if behind:
                for _ in range(REFUSALS - 1):
                    socket.send(bad)
                await socket.until(lambda w: len(w.frames) == REFUSALS - 1)
                assert is_completed(await socket.answer(input="Hello"))
                socket.frames.clear()
            for _ in range(REFUSALS - 1):
                socket.send(bad)
            await socket.until(lambda w: len(w.frames) == REFUSALS - 1)
            assert socket.code is None
            socket.send(bad)
            await socket.done()
            assert socket.frames[-1]["error"]["code"] == "websocket_refusal_limit_reached"
            assert socket.code == 1008

    asyncio.run(story())


def test_requests_that_are_refused_one_after_another_let_others_run_between() -> None:
    async def story() -> None:
        async with talking(ANSWER, manual=True) as (s, socket):
            socket.create(input="Hello")
            await until(lambda: bool(s.engine.requests))
            for _ in range(100):
                socket.create(input="Hello", model="other")
            async with connected(s.app) as other:
                other.send("{")  # in its turn, behind all of them
                await other.until(lambda w: bool(w.frames))
            stepping = asyncio.ensure_future(s.clock.step(30))
            seen = set()
            while sum(map(is_last, socket.frames)) <= 100:
                seen.add(len(socket.frames))
                await turn()
            assert len(seen) > 90
            await stepping

    asyncio.run(story())


KEYS = {"api_keys": "ann:secret"}


@pytest.mark.parametrize(
    ("headers", "settings", "status"),
    [
        ({"host": "evil.example"}, {}, 403),
        ({"origin": "https://evil.example"}, {}, 403),
        ({"origin": "null"}, {}, 403),
        ({}, KEYS, 401),
        ({"authorization": "Bearer wrong"}, KEYS, 401),
        ({"x-trt-dialect": "klingon"}, {}, 400),
    ],
)
def test_an_upgrade_is_refused_in_the_apis_shape(
    headers: dict[str, str], settings: dict[str, Any], status: int
) -> None:
    async def story() -> None:
        async with served(**settings) as s:
            socket = Socket(s.app, headers, "/v1/responses")
            await socket.done()
            assert socket.status == status
            assert socket.error["message"]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("headers", "settings"),
    [
        ({"origin": "http://127.0.0.1:8000"}, {}),
        ({"origin": "https://app.example"}, {"allowed_origins": "https://app.example"}),
        ({"authorization": "Bearer secret"}, KEYS),
    ],
)
def test_who_may_connect_may(headers: dict[str, str], settings: dict[str, Any]) -> None:
    async def story() -> None:
        async with served(**settings) as s, connected(s.app, **headers) as socket:
            assert is_completed(await socket.answer(input="Hello"))

    asyncio.run(story())


def test_there_are_so_many_connections_and_no_more() -> None:
    async def story() -> None:
        async with talking(websockets=1) as (s, socket):
            await socket.answer(input="Hello")
            other = Socket(s.app, {}, "/v1/responses")
            await other.done()
            assert other.status == 429
            socket.leave()
            await socket.done()
            async with connected(s.app) as third:
                assert is_completed(await third.answer(input="Hello"))

    asyncio.run(story())


async def upgrade(s: Served, key: str) -> Socket:
    """A connection that has been accepted or refused."""
    socket = Socket(s.app, {"authorization": f"Bearer {key}"} if key else {}, "/v1/responses")
    await until(lambda: bool(socket.heard))
    return socket


def is_open(socket: Socket) -> bool:
    return bool(socket.heard[0]["type"] == "websocket.accept") and socket.code is None


def test_one_owner_may_have_half_of_the_connections() -> None:
    async def story() -> None:
        keys: dict[str, Any] = {"api_keys": "ann:secret,bob:other"}
        async with served(websockets=4, **keys) as s:
            anns = [await upgrade(s, "secret") for _ in range(4)]
            assert [is_open(socket) for socket in anns] == [True, True, False, False]
            assert anns[2].status == 429
            bobs = [await upgrade(s, "other") for _ in range(3)]
            assert [is_open(socket) for socket in bobs] == [True, True, False]
            for socket in (*anns, *bobs):
                socket.leave()
                await socket.done()

    asyncio.run(story())


def test_a_connection_that_nobody_uses_is_closed_and_one_that_was_used_is_not() -> None:
    async def story() -> None:
        ticks = Ticks()
        async with served(sleep=ticks.sleep) as s, connected(s.app) as used:
            assert is_completed(await used.answer(input="Hello"))
            unused = await upgrade(s, "")
            await ticks.pass_(IDLE_S)
            await unused.done()
            assert unused.frames[-1]["error"]["code"] == "websocket_connection_limit_reached"
            assert unused.code == 1000
            await ticks.pass_(3 * IDLE_S)
            assert is_completed(await used.answer(input="Hello"))

    asyncio.run(story())


@pytest.mark.parametrize("key", ["", "secret"], ids=["of all", "of an owner"])
def test_an_idle_connection_leaves_its_place_to_a_new_one(key: str) -> None:
    async def story() -> None:
        ticks = Ticks()
        keys: dict[str, Any] = {"api_keys": f"ann:{key}"} if key else {}
        most = 4 if key else 2
        async with served(STALLED, sleep=ticks.sleep, websockets=most, **keys) as s:
            idle, busy = [await upgrade(s, key) for _ in range(2)]
            busy.create(input="Hello")
            await idle.answer(input="Hello", generate=False)
            await ticks.pass_(IDLE_S)
            assert (await upgrade(s, key)).status == 429
            await ticks.pass_(IDLE_S)
            new = await upgrade(s, key)
            assert is_open(new)
            await idle.done()
            assert idle.code == 1000
            assert is_open(busy)
            for socket in (busy, new):
                socket.leave()
                await socket.done()

    asyncio.run(story())


# --- ends -------------------------------------------------------------------------------------


def test_a_client_that_leaves_cancels_what_is_made_and_what_waits() -> None:
    async def story() -> None:
        async with served(STALLED, manual=True) as s:
            socket = Socket(s.app, {}, "/v1/responses")
            for _ in range(3):
                socket.create(input="Hello")
            socket.create(input="Hello", stream_id="b")
            await until(lambda: len(s.engine.requests) == 2)
            await s.clock.step(2)
            socket.leave()
            await socket.done()
            assert [request.state for request in s.engine.requests] == ["aborted", "aborted"]
            assert len(s.runs) == 0

    asyncio.run(story())


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21])
def test_a_client_may_leave_at_any_time(turns: int) -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            socket = Socket(s.app, {}, "/v1/responses")
            socket.create(input="Hello")
            socket.create(input="Hello", stream_id="b")
            await turn(turns)
            socket.leave()
            await socket.done()
            assert len(s.runs) == 0
            async with connected(s.app) as again:
                assert is_completed(await again.answer(input="Hello"))

    asyncio.run(story())


def test_a_client_that_takes_nothing_is_dropped_and_its_run_ends() -> None:
    async def story() -> None:
        async with served(wide(60), max_backlog_bytes=100_000) as s:
            socket = Socket(s.app, {}, "/v1/responses")
            socket.create(input="Hello")
            await socket.until(lambda w: len(w.frames) > 2)
            socket.reading.clear()
            await socket.done()
            assert s.last.state == "aborted"
            assert len(s.runs) == 0

    asyncio.run(story())


def test_bytes_end_the_connection() -> None:
    async def story() -> None:
        async with talking() as (_, socket):
            socket.send(b"{}")
            await socket.done()
            assert socket.code == 1003

    asyncio.run(story())


def test_a_drain_lets_what_is_made_end_and_begins_nothing_new() -> None:
    async def story() -> None:
        async with talking(LONG, manual=True) as (s, socket):
            socket.create(input="Hello")
            socket.create(input="Hello")
            await until(lambda: bool(s.engine.requests))
            await s.clock.step(3)
            s.drain()
            s.app.state.sockets.drain()
            await s.clock.step(220)
            await socket.done()
            assert is_completed(socket.frames)
            assert socket.code == 1012
            assert len(s.engine.requests) == 1
            late = Socket(s.app, {}, "/v1/responses")
            await late.done()
            assert late.status == 503

    asyncio.run(story())


def test_a_connection_that_has_lived_long_enough_is_ended_with_a_word() -> None:
    async def story() -> None:
        ticks = Ticks()
        async with talking(sleep=ticks.sleep, websocket_s=100) as (_, socket):
            await socket.answer(input="Hello")
            await ticks.pass_(101)
            await socket.done()
            assert socket.frames[-1]["error"]["code"] == "websocket_connection_limit_reached"
            assert socket.code == 1000

    asyncio.run(story())


def test_an_event_is_repeated_in_a_long_silence() -> None:
    async def story() -> None:
        ticks = Ticks()
        async with talking(STALLED, sleep=ticks.sleep, keep_alive_s=10) as (s, socket):
            socket.create(input="Hello")
            await until(lambda: bool(s.engine.requests))
            await socket.until(lambda w: len(w.frames) > 4)
            before = len(socket.frames)
            for _ in range(40):
                await ticks.pass_(2.5)
            await socket.until(lambda w: len(w.frames) > before)
            last, begun = socket.frames[-1], socket.frames[1]
            assert last == begun | {"sequence_number": last["sequence_number"]}

    asyncio.run(story())
