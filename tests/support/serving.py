"""A real server on a free port: on the test's own event loop, or as a child process. Leaving the
`with` ends it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import uvicorn
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from tests.support.asgi import PATIENCE_S, until
from tests.support.processes import children_of
from tests.support.served import SETTINGS
from trt_responses.app import create_app
from trt_responses.serve.server import Server, bound
from trt_responses.settings import Settings

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from fastapi import FastAPI
    from starlette.types import ASGIApp

    from trt_responses.engine import Engine
    from trt_responses.store import Store
    from trt_responses.tool import Tool


class _Announcing(uvicorn.Server):
    """Says when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.up.set()


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@contextmanager
def threaded(app: ASGIApp, ws: Any = "none") -> Iterator[str]:
    """The address of a server in a thread, for a client that waits in this one."""
    found: list[str] = []
    up, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with serving(app, ws=ws) as address:
            found.append(address.url)
            up.set()
            await over.wait()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    up.wait()
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@asynccontextmanager
async def serving(
    app: ASGIApp,
    *,
    http: type[asyncio.Protocol] | Literal["auto"] = "auto",
    port: int = 0,
    ws: Any = "none",
) -> AsyncIterator[Address]:
    """The app under uvicorn on this event loop, so that a test can step the engine's clock."""
    config = uvicorn.Config(app, http=http, port=port, log_level="warning", lifespan="on", ws=ws)
    server = _Announcing(config)
    life = asyncio.create_task(server.serve())
    await server.up.wait()
    try:
        assert server.started, "the server did not start"
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        yield Address(host, port)
    finally:
        server.should_exit = True
        async with asyncio.timeout(PATIENCE_S):
            await life


class Child:
    """`python -m trt_responses` as a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdout = process.stdout
        self._stderr = process.stderr

    async def ready(self) -> Address:
        """The address in its first line."""
        async with asyncio.timeout(PATIENCE_S):
            line = (await self._stdout.readline()).decode()
        found = re.match(r"http://(\S+):(\d+) is ready; .*try: curl ", line)
        assert found, line + (await self._stderr.read()).decode()
        return Address(found[1], int(found[2]))

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    @property
    def pid(self) -> int:
        return self._process.pid

    def children(self) -> list[int]:
        """Its own child processes."""
        return children_of(self._process.pid)

    async def says(self, words: str) -> None:
        """Wait until a line of its log has these words; lines up to it are read by then."""
        async with asyncio.timeout(PATIENCE_S):
            while words not in (line := (await self._stderr.readline()).decode()):
                assert line, f"it ended without the line {words!r}"

    async def ended(self) -> tuple[int, str, str]:
        """Exit status, and the rest of both streams."""
        async with asyncio.timeout(PATIENCE_S):
            out, err = await self._process.communicate()
        assert self._process.returncode is not None
        return self._process.returncode, out.decode(), err.decode()

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.communicate()


@asynccontextmanager
async def child(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Child]:
    """A command of this project, with these settings and no others from the environment; it
    leaves no history behind, unless they say so."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TRT_RESPONSES_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "trt_responses", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=inherited | {"TRT_RESPONSES_STORE": "memory://"} | dict(environment or {}),
    )
    started = Child(process)
    try:
        yield started
    finally:
        await started.kill()


@asynccontextmanager
async def listening(
    engine: Engine,
    store: Store | None = None,
    tools: Sequence[Tool] | None = None,
    **settings: Any,
) -> AsyncIterator[Address]:
    app = create_app(Settings(**(SETTINGS | settings)), engine=engine, store=store, tools=tools)
    async with serving(app) as address:
        yield address


def client_of(address: Address, **options: Any) -> AsyncOpenAI:
    """The SDK's client, but that it does not read all certificates, which takes 20 ms."""
    given: dict[str, Any] = {
        "max_retries": 0,
        "http_client": DefaultAsyncHttpxClient(verify=False),
    } | options
    return AsyncOpenAI(base_url=f"{address.url}/v1", api_key="none", **given)


@asynccontextmanager
async def our_server(
    app: FastAPI, settings: Settings, *, ready: bool = True, listen_when_ready: bool = False
) -> AsyncIterator[Server]:
    """The very server that `serve` runs, on this event loop and on the address it would take;
    `ready`, or as soon as it listens."""
    server = Server(app, settings, listen_when_ready=listen_when_ready)
    life = asyncio.create_task(server.serve(sockets=[bound(settings)]))
    await until(
        lambda: app.state.lifecycle.state == "ready" if ready else server.started or life.done()
    )
    try:
        yield server
    finally:
        server.should_exit = True
        async with asyncio.timeout(PATIENCE_S):
            await life
