"""A server that is told to stop, step by step: who is still answered, and what with.

The linger and the deadline are hours long here and are ended by hand; signals and clocks are real
in `test_lifecycle.py`.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from json import loads
from typing import TYPE_CHECKING

import httpx2 as httpx
import pytest

from tests.support.asgi import asked, events_of, until
from tests.support.raw_http import Wire
from tests.support.scripted.engine import ScriptedEngine, StepClock
from tests.support.served import ANSWER, SETTINGS, STALLED, script
from tests.support.serving import Address, our_server
from tests.support.turns import turn
from trt_responses.app import create_app
from trt_responses.backends.keys import admin_key
from trt_responses.cli.main import main
from trt_responses.errors import StartupError
from trt_responses.serve.server import Server, bound
from trt_responses.settings import Settings
from trt_responses.stores.memory.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

HOURS = {"linger_s": 3600.0, "drain_s": 3600.0}


def address_of(server: Server) -> Address:
    return Address(*server.servers[0].sockets[0].getsockname()[:2])


def client_of(server: Server) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=address_of(server).url, timeout=300, trust_env=False)


class Loading(ScriptedEngine):
    """Its start goes on until the test says so."""

    loaded: asyncio.Event
    stopped = False

    async def start(self) -> None:
        self.loaded = asyncio.Event()
        await self.loaded.wait()
        await super().start()

    async def stop(self, deadline_s: float) -> None:
        self.stopped = True
        await super().stop(deadline_s)


def test_the_socket_listens_while_the_engine_is_loaded() -> None:
    async def story() -> None:
        settings = Settings(**SETTINGS, port=0)
        engine = Loading([script(ANSWER)])
        app = create_app(settings, engine=engine)
        async with our_server(app, settings, ready=False) as server, client_of(server) as client:
            await until(lambda: app.state.lifecycle.reason == "loading the engine")
            for method, path in (
                *(("POST", "/v1/responses"), ("POST", "/v1/chat/completions")),
                *(("GET", "/v1/responses/resp_1"), ("GET", "/v1/models")),
            ):
                reply = await client.request(method, path, json=asked())
                assert (reply.status_code, reply.json()["error"]["code"]) == (503, "starting")
                assert "loading the engine" in reply.json()["error"]["message"]
                assert reply.headers["x-should-retry"] == "true"
                assert int(reply.headers["retry-after"]) in range(1, 6)
            whole = await client.get("/health")
            assert (whole.status_code, whole.json()["state"]) == (503, "starting")
            assert (await client.get("/health/live")).status_code == 200
            assert (await client.get("/v1/health/ready")).status_code == 503
            assert (await client.get("/metrics")).status_code == 200
            engine.loaded.set()
            await until(lambda: app.state.lifecycle.state == "ready")
            assert (await client.get("/v1/health/ready")).status_code == 200
            assert (await client.post("/v1/responses", json=asked())).status_code == 200

    asyncio.run(story())


def test_a_server_among_others_listens_when_it_is_ready() -> None:
    """Whoever connects while it loads reaches a sibling that shares the address."""

    async def story() -> None:
        settings = Settings(**SETTINGS, port=0)
        engine = Loading([script(ANSWER)])
        app = create_app(settings, engine=engine)
        own = bound(settings, shared=True)
        server = Server(app, settings, listen_when_ready=True)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(sockets=[own]))
            await until(lambda: app.state.lifecycle.reason == "loading the engine")
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*own.getsockname()[:2])
            engine.loaded.set()
            await until(lambda: app.state.lifecycle.state == "ready" and bool(server.servers))
            async with client_of(server) as client:
                assert (await client.post("/v1/responses", json=asked())).status_code == 200
            server.should_exit = True

    asyncio.run(story())


@pytest.mark.parametrize("alone", [True, False])
def test_a_server_that_is_stopped_while_it_loads_ends_at_once_and_stops_the_engine(
    alone: bool,
) -> None:
    async def story() -> None:
        settings = Settings(**SETTINGS, port=0, **HOURS)
        engine = Loading([script(ANSWER)])
        app = create_app(settings, engine=engine)
        late = {"ready": False, "listen_when_ready": not alone}
        async with our_server(app, settings, **late) as server:
            await until(lambda: app.state.lifecycle.reason == "loading the engine")
        assert engine.stopped
        assert server.fault is None

    asyncio.run(story())


def test_a_start_that_fails_ends_the_server_with_the_reason() -> None:
    class Broken(ScriptedEngine):
        async def start(self) -> None:
            raise StartupError("No card is in the slot.")

    class SlowToClose(MemoryStore):
        async def stop(self) -> None:
            await closing.wait()
            await super().stop()

    closing = asyncio.Event()

    async def story() -> None:
        settings = Settings(**SETTINGS, port=0, **HOURS)
        app = create_app(settings, engine=Broken([script(ANSWER)]), store=SlowToClose())
        async with our_server(app, settings, ready=False) as server:
            await until(lambda: app.state.lifecycle.state == "failed")
            assert not await server.on_tick(1), "the start tells its fault first"
            assert server.lost is None
            closing.set()
            await until(lambda: server.fault is not None)
        assert str(server.fault) == "No card is in the slot."

    asyncio.run(story())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
def test_a_drain_serves_everything_then_what_runs_then_nothing(stream: bool) -> None:
    async def story() -> None:
        settings = Settings(**SETTINGS, port=0, **HOURS)
        engine = ScriptedEngine([script(ANSWER)], clock=StepClock.manual(settle_turns=40))
        app = create_app(settings, engine=engine)
        life = app.state.lifecycle
        async with our_server(app, settings) as server, client_of(server) as client:

            async def ask() -> httpx.Response:
                return await client.post("/v1/responses", json=asked(stream=stream))

            async def finished(call: asyncio.Task[httpx.Response]) -> httpx.Response:
                while not call.done():
                    await engine.clock.step()
                    await turn()
                return call.result()

            stored = await finished(asyncio.create_task(ask()))
            assert "connection" not in stored.headers
            response_id = (
                events_of(stored.content)[-1]["response"]["id"] if stream else stored.json()["id"]
            )
            before = asyncio.create_task(ask())
            await until(lambda: len(engine.requests) == 2)

            life.drain(settings.linger_s)
            assert (await client.get("/health/ready")).status_code == 503
            assert (await client.get("/health/live")).status_code == 200
            during = asyncio.create_task(ask())  # proxies learn late, and still send
            await until(lambda: len(engine.requests) == 3)

            life.drain(0)
            refused = await ask()
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "server_draining"
            assert refused.headers["connection"] == "close"
            assert refused.headers["x-should-retry"] == "true"
            assert int(refused.headers["retry-after"]) in range(1, 6)
            chat = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}
            refused = await client.post("/v1/chat/completions", json=chat)
            assert refused.json()["error"]["code"] == "server_draining"
            found = await client.get(f"/v1/responses/{response_id}")
            assert (found.status_code, found.headers["connection"]) == (200, "close")
            assert (await client.delete(f"/v1/responses/{response_id}")).status_code == 200
            assert (await client.get("/metrics")).status_code == 200

            for call in (before, during):
                reply = await finished(call)
                assert reply.status_code == 200
                if stream:
                    assert events_of(reply.content)[-1]["type"] == "response.completed"
        assert life.draining

    asyncio.run(story())


def test_connections_are_taken_until_the_last_stream_has_ended() -> None:
    async def story() -> None:
        settings = Settings(**SETTINGS, port=0, **HOURS)
        engine = ScriptedEngine([script(ANSWER)], clock=StepClock.manual(settle_turns=40))
        app = create_app(settings, engine=engine)
        async with our_server(app, settings) as server:
            address = address_of(server)
            async with Wire.to(address) as wire:
                wire.ask(stream=True)
                assert await wire.status() == 200
                body = asyncio.create_task(wire.chunks())
                await until(lambda: bool(engine.requests))
                app.state.lifecycle.drain(0)
                while not body.done():
                    async with Wire.to(address) as late:
                        late.ask()
                        assert await late.status() == 503
                    await engine.clock.step()
                assert events_of(body.result())[-1]["type"] == "response.completed"

    asyncio.run(story())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
def test_what_runs_at_the_deadline_fails_with_its_code(stream: bool) -> None:
    async def story() -> None:
        settings = Settings(**SETTINGS, port=0, linger_s=0, drain_s=0)
        engine = ScriptedEngine([STALLED])
        app = create_app(settings, engine=engine)
        async with our_server(app, settings) as server, client_of(server) as client:
            body = asked(stream=stream)
            call = asyncio.create_task(client.post("/v1/responses", json=body))
            await until(lambda: bool(engine.requests))
            app.state.lifecycle.drain(0)
            reply = await call
            if stream:
                error, failed = events_of(reply.content)[-2:]
                assert (error["type"], error["code"]) == ("error", "server_shutdown")
                assert failed["response"]["status"] == "failed"
                assert "was stopped" in failed["response"]["error"]["message"]
            else:
                assert (reply.status_code, reply.json()["error"]["code"]) == (
                    *(500, "server_shutdown"),
                )

    asyncio.run(story())


def test_the_command_drains_a_server_and_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(**SETTINGS, port=0, linger_s=0, drain_s=60.0, admin_key="a" * 32)

    def drain(port: int, *more: str) -> int:
        return main(["drain", "--port", str(port), *more])

    async def story() -> None:
        app = create_app(settings, engine=ScriptedEngine([script(ANSWER)]))
        async with our_server(app, settings) as server:
            port = address_of(server).port
            assert await asyncio.to_thread(drain, port) == 2
            assert "TRT_RESPONSES_ADMIN_KEY" in capsys.readouterr().err
            monkeypatch.setenv("TRT_RESPONSES_ADMIN_KEY", "b" * 32)
            assert await asyncio.to_thread(drain, port) == 1
            assert "refused to drain (403)" in capsys.readouterr().err
            assert app.state.lifecycle.state == "ready"
            monkeypatch.setenv("TRT_RESPONSES_ADMIN_KEY", admin_key(settings) or "")
            assert await asyncio.to_thread(drain, port, "--wait") == 0
            assert capsys.readouterr().out == f"127.0.0.1:{port} is draining\n"
            assert await asyncio.to_thread(drain, port) == 1
            assert "No server answers" in capsys.readouterr().err

    asyncio.run(story())


def test_what_is_stored_can_be_read_until_nobody_is_connected_any_more() -> None:
    class SlowToStop(ScriptedEngine):
        async def stop(self, deadline_s: float) -> None:
            stopping.set()
            await may_stop.wait()
            await super().stop(deadline_s)

    stopping, may_stop = asyncio.Event(), asyncio.Event()

    async def story() -> None:
        settings = Settings(**SETTINGS, port=0, linger_s=0, drain_s=0)
        app = create_app(settings, engine=SlowToStop([script(ANSWER)]))
        async with our_server(app, settings) as server, client_of(server) as client:
            stored = (await client.post("/v1/responses", json=asked())).json()
            server.should_exit = True
            await stopping.wait()
            found = await client.get(f"/v1/responses/{stored['id']}")
            assert (found.status_code, found.json()) == (200, stored)
            refused = await client.post("/v1/responses", json=asked())
            assert refused.json()["error"]["code"] == "server_draining"
            may_stop.set()

    asyncio.run(story())


async def line_with(lines: AsyncIterator[str], words: str) -> str:
    """The first line of data that holds these words."""
    return await anext(line async for line in lines if line.startswith("data: ") and words in line)


@pytest.mark.parametrize("whose", ["its own", "another's"])
def test_a_stream_of_a_response_that_moves_is_cut_and_leaves_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, whose: str
) -> None:
    """Its client goes on behind the last event, at the server that goes on with the response."""

    async def story() -> None:
        place = f"sqlite:///{tmp_path / 'history.db'}"
        settings = Settings(**SETTINGS, port=0, linger_s=0, drain_s=0, store=place)
        apps = [create_app(settings, engine=ScriptedEngine([STALLED])) for _ in range(2)]
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(our_server(apps[0], settings))
            client = await stack.enter_async_context(client_of(one))
            body = asked(stream=True, background=True)
            told = await stack.enter_async_context(
                client.stream("POST", "/v1/responses", json=body)
            )
            lines = told.aiter_lines()
            first = await line_with(lines, "response.created")
            response_id = loads(first.removeprefix("data: "))["response"]["id"]
            ends, reads = one, lines
            if whose == "another's":
                ends = await stack.enter_async_context(our_server(apps[1], settings))
                other = await stack.enter_async_context(client_of(ends))
                path = f"/v1/responses/{response_id}?stream=true"
                found = await stack.enter_async_context(other.stream("GET", path))
                reads = found.aiter_lines()
                await line_with(reads, "data: ")
            ends.should_exit = True
            with pytest.raises(httpx.RemoteProtocolError):
                await line_with(reads, "[DONE]")

    asyncio.run(story())
    assert not [record for record in caplog.records if record.exc_info]
