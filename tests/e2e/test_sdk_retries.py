"""OpenAI's SDK as people use it, with its default retries, against a server that drains and comes
back: nobody is told of it. It waits as `retry-after` says, up to 5 s."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import openai
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from tests.support.asgi import PATIENCE_S, until
from tests.support.raw_http import Wire
from tests.support.scripted.engine import Script, ScriptedEngine
from tests.support.served import ANSWER, SETTINGS, STALLED, script
from tests.support.serving import Address, client_of, listening
from trt_responses.app import create_app
from trt_responses.serve.server import Server
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from fastapi import FastAPI
    from httpx2 import Response


@asynccontextmanager
async def server_on(held: socket.socket, *scripts: Script) -> AsyncIterator[FastAPI]:
    """A server on a socket that outlives it, as systemd's does."""
    settings = Settings(**SETTINGS, drain_s=3600)
    app = create_app(settings, engine=ScriptedEngine(scripts))
    server = Server(app, settings)
    life = asyncio.create_task(server.serve(sockets=[held.dup()]))
    await until(lambda: app.state.lifecycle.state == "ready")
    try:
        yield app
    finally:
        server.should_exit = True
        async with asyncio.timeout(PATIENCE_S):
            await life


async def answered(client: AsyncOpenAI) -> str:
    return (await client.responses.create(model="demo", input="Hello")).output_text


async def streamed(client: AsyncOpenAI) -> str:
    stream = await client.responses.create(model="demo", input="Hello", stream=True)
    return "".join([e.delta async for e in stream if e.type == "response.output_text.delta"])


async def chatted(client: AsyncOpenAI) -> str:
    made = await client.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": "Hello"}]
    )
    return made.choices[0].message.content or ""


ASKS: tuple[Callable[[AsyncOpenAI], Coroutine[None, None, str]], ...] = (
    answered,
    streamed,
    chatted,
)


def test_clients_with_default_retries_come_through_a_restart() -> None:
    """Budget: 8 s."""
    statuses: list[int] = []

    async def note(response: Response) -> None:
        statuses.append(response.status_code)

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as held:
            address = Address(*held.getsockname()[:2])
            http = DefaultAsyncHttpxClient(event_hooks={"response": [note]})
            client = AsyncOpenAI(base_url=f"{address.url}/v1", api_key="none", http_client=http)
            async with client:
                async with server_on(held, STALLED) as old, Wire.to(address) as running:
                    running.ask(stream=True)
                    assert await running.status() == 200
                    old.state.lifecycle.drain(0)
                    calls = [asyncio.create_task(ask(client)) for ask in ASKS]
                    await until(lambda: len(statuses) >= len(ASKS))
                    running.close()  # the last one that ran: the old server ends
                async with server_on(held, script(ANSWER)):
                    assert await asyncio.gather(*calls) == ["Hello there, friend."] * len(ASKS)
        assert set(statuses[: -len(ASKS)]) == {503}
        assert statuses[-len(ASKS) :] == [200] * len(ASKS)

    asyncio.run(story())


def test_an_owner_over_its_limit_is_asked_to_wait_by_the_sdk_s_own_error() -> None:
    async def story() -> None:
        engine = ScriptedEngine([script(ANSWER)])
        server = listening(engine, owner_requests_per_minute=1)
        async with server as address, client_of(address) as client:
            assert await answered(client)
            with pytest.raises(openai.RateLimitError) as refused:
                await answered(client)
            headers = refused.value.response.headers
            assert refused.value.code == "rate_limit_exceeded"
            assert f"try again in {headers['retry-after']}s" in refused.value.message
            assert headers["x-ratelimit-limit-requests"] == "1"

    asyncio.run(story())
