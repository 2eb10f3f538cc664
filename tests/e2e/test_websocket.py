"""WebSocket over real sockets: the SDK's own client, a plain one, and what a server says and does
before and after a connection."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from openai import AsyncOpenAI
from openai.types.responses import (
    FunctionToolParam,
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
)
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.asgi import until
from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
from tests.support.served import ANSWER, CALL, LONG, SETTINGS, script, wide
from tests.support.serving import our_server
from trt_responses.app import create_app
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from openai.resources.responses.responses import AsyncResponsesConnection

    from trt_responses.serve.server import Server

TOOL: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object"},
    "strict": None,
}
HELLO = {"type": "response.create", "model": "demo", "input": "Hello", "store": False}


class Live:
    """Our server on a free port, and its engine."""

    def __init__(self, server: Server, engine: ScriptedEngine) -> None:
        self.server = server
        self.engine = engine
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        self.http = f"http://{host}:{port}/v1"
        self.ws = f"ws://{host}:{port}/v1/responses"


@asynccontextmanager
async def live(
    *written: str | Script, manual: bool = False, **settings: Any
) -> AsyncIterator[Live]:
    left = [script(each) if isinstance(each, str) else each for each in written]
    clock = StepClock.manual() if manual else StepClock.free()
    engine = ScriptedEngine(lambda *_: left.pop(0) if len(left) > 1 else left[0], clock=clock)
    chosen = Settings(**(SETTINGS | {"port": 0} | settings))
    async with our_server(create_app(chosen, engine=engine), chosen) as server:
        yield Live(server, engine)


def test_the_sdk_runs_a_tool_loop_over_one_connection_and_nothing_is_stored() -> None:
    async def story() -> None:
        async with live(CALL, ANSWER) as here:
            client = AsyncOpenAI(base_url=here.http, api_key="none")
            async with client.responses.connect() as connection:
                await connection.response.create(
                    model="demo", input="Weather?", tools=[TOOL], store=False
                )
                first = await _response(connection)
                call = first.output[-1]
                assert isinstance(call, ResponseFunctionToolCall)
                await connection.response.create(
                    model="demo",
                    previous_response_id=first.id,
                    input=[
                        {"type": "function_call_output", "call_id": call.call_id, "output": "Sun"}
                    ],
                    tools=[TOOL],
                    store=False,
                    stream_id="second",
                )
                assert (await _response(connection)).output_text == "Hello there, friend."
            one, two = here.engine.requests
            assert list(two.prompt_ids)[: len(one.prompt_ids)] == list(one.prompt_ids)

    asyncio.run(story())


async def _response(connection: AsyncResponsesConnection) -> Response:
    """The next response that is made."""
    async for event in connection:
        if isinstance(event, ResponseCompletedEvent):
            return event.response
    raise AssertionError("the connection has ended")


def test_nothing_is_compressed_and_no_client_needs_to_be_told() -> None:
    async def story() -> None:
        async with live(ANSWER) as here, connect(here.ws) as socket:
            assert not socket.protocol.extensions
            assert socket.response is not None
            assert socket.response.headers["x-request-id"].startswith("req_")

    asyncio.run(story())


def test_a_frame_larger_than_a_body_may_be_closes_the_connection() -> None:
    async def story() -> None:
        async with live(ANSWER, max_body_bytes=10_000) as here, connect(here.ws) as socket:
            await socket.send(orjson.dumps(HELLO | {"input": "x" * 9_000}).decode())
            async for message in socket:
                if orjson.loads(message)["type"] == "response.completed":
                    break
            await socket.send(orjson.dumps(HELLO | {"input": "x" * 10_000}).decode())
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
            assert len(here.engine.requests) == 1

    asyncio.run(story())


@pytest.mark.parametrize(
    ("path", "settings", "status", "code"),
    [
        ("", {"websockets": 0}, 426, "websocket_not_supported"),
        ("/resp_1", {}, 426, "websocket_not_supported"),
        ("", {"api_keys": "ann:secret"}, 401, "invalid_api_key"),
    ],
)
def test_an_upgrade_that_is_refused_is_a_reply(
    path: str, settings: dict[str, Any], status: int, code: str
) -> None:
    async def story() -> None:
        async with live(ANSWER, **settings) as here:
            with pytest.raises(InvalidStatus) as refused:
                await connect(here.ws + path)
            response = refused.value.response
            assert response.status_code == status
            assert orjson.loads(response.body or b"")["error"]["code"] == code

    asyncio.run(story())


def test_a_connection_outlives_the_time_that_a_request_may_take() -> None:
    async def story() -> None:
        async with live(ANSWER, read_timeout_s=0.5) as here, connect(here.ws) as socket:
            for _ in range(3):
                await asyncio.wait_for(socket.ping(), None)
                await asyncio.to_thread(lambda: None)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(socket.recv(), 1.0)  # nothing comes, and no end
            await socket.send(orjson.dumps(HELLO).decode())
            assert orjson.loads(await socket.recv())["type"] == "response.created"

    asyncio.run(story())


@pytest.mark.parametrize("abrupt", [True, False], ids=["reset", "closed"])
def test_a_client_that_leaves_ends_its_run(abrupt: bool) -> None:
    async def story() -> None:
        async with live(wide(20_000)) as here:
            # this client reads no more, and so would wait for the server's close frame
            socket = await connect(here.ws, close_timeout=0.1)
            await socket.send(orjson.dumps(HELLO).decode())
            await socket.recv()
            if abrupt:
                socket.transport.abort()
            else:
                await socket.close()
            await until(lambda: here.engine.requests[-1].state == "aborted")

    asyncio.run(story())


def test_a_server_that_is_stopped_ends_what_it_makes_and_says_that_it_restarts() -> None:
    async def story() -> None:
        async with live(LONG, manual=True) as here, connect(here.ws) as socket:
            idle = await connect(here.ws)
            await socket.send(orjson.dumps(HELLO).decode())
            await until(lambda: bool(here.engine.requests))
            await here.engine.clock.step(5)
            here.server.should_exit = True
            with pytest.raises(ConnectionClosed):
                await idle.recv()
            assert idle.close_code == 1012
            await here.engine.clock.step(220)
            kinds = []
            with suppress(ConnectionClosed):
                while True:
                    kinds.append(orjson.loads(await socket.recv())["type"])
            assert kinds[-1] == "response.completed"
            assert socket.close_code == 1012

    asyncio.run(story())


def test_a_client_that_takes_nothing_does_not_hold_its_connection() -> None:
    async def story() -> None:
        async with live(wide(20_000), max_backlog_bytes=100_000) as here:
            reader, writer = await asyncio.open_connection(*here.ws[5:].split("/")[0].split(":"))
            writer.write(
                b"GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: Upgrade\r\n"
                b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
                b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            assert b" 101 " in await reader.readline()
            await reader.readuntil(b"\r\n\r\n")
            body = orjson.dumps(HELLO)
            writer.write(b"\x81" + bytes([128 + len(body)]) + bytes(4) + body)
            assert isinstance(writer.transport, asyncio.Transport)
            writer.transport.pause_reading()
            await until(lambda: bool(here.engine.requests))
            await until(lambda: here.engine.requests[-1].state == "aborted")
            writer.transport.abort()

    asyncio.run(story())
