"""The server of all tests of a process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import uvicorn

from trt_responses.app import create_app
from trt_responses.features.script.engine import SCRIPT
from trt_responses.features.script.rules import AUTO_RULES, Script
from trt_responses.settings import Settings
from trt_responses.testing.world import ResponsesServer, Sent

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Host(uvicorn.Server):
    """The server, in a thread. Each test has a world of its own: a port,
    a script, and a list of requests."""

    def __init__(self, app: FastAPI) -> None:
        self._worlds: dict[int, tuple[ResponsesServer, asyncio.Server]] = {}
        noted = _Noted(app, self._worlds)
        super().__init__(uvicorn.Config(noted, log_level="error", access_log=False, lifespan="on"))
        self._up = threading.Event()
        self._thread = threading.Thread(target=self.run, args=([],))

    @classmethod
    def begun(cls) -> Host:
        settings = Settings(
            engine="script://auto#faults",
            store="memory://",
            model=("script", "*"),
            max_calls=16,
            playground=False,
        )
        host = cls(create_app(settings))
        host._thread.start()
        host._up.wait()
        return host

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self._loop = asyncio.get_running_loop()
            self._up.set()

    def open(self) -> ResponsesServer:
        return asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()

    def close(self, world: ResponsesServer) -> None:
        asyncio.run_coroutine_threadsafe(self._close(world), self._loop).result()

    def end(self) -> None:
        self.should_exit = True
        self._thread.join()

    async def _open(self) -> ResponsesServer:
        listening = await self._loop.create_server(self._protocol, "127.0.0.1", 0)
        host, port = listening.sockets[0].getsockname()
        script = Script(AUTO_RULES, by_header=True)
        world = ResponsesServer(f"http://{host}:{port}/v1", [], script)
        self._worlds[port] = world, listening
        return world

    async def _close(self, world: ResponsesServer) -> None:
        """Stop listening, and hang up."""
        port = next(port for port, (each, _) in self._worlds.items() if each is world)
        self._worlds.pop(port)[1].close()
        for connection in list(self.server_state.connections):
            transport = connection.transport
            if transport.get_extra_info("sockname")[1] == port:
                transport.abort()

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made


class _Noted:
    """An ASGI layer that keeps what clients send, and lets the world's script be played."""

    def __init__(
        self, app: ASGIApp, worlds: Mapping[int, tuple[ResponsesServer, asyncio.Server]]
    ) -> None:
        self._app = app
        self._worlds = worlds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (port := scope["server"][1]) not in self._worlds:
            await self._app(scope, receive, send)
            return
        world, _ = self._worlds[port]
        SCRIPT.set(world.played)
        first: list[Message] = []
        while not first or first[-1].get("more_body"):
            first.append(await receive())
        body = b"".join(message.get("body", b"") for message in first)
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        world.requests.append(Sent(scope["method"], scope["path"], headers, _read(body)))
        ahead = iter(first)

        async def again() -> Message:
            return next(ahead, None) or await receive()

        await self._app({**scope, "headers": list(_apart(scope["headers"], port))}, again, send)


def _apart(headers: Sequence[tuple[bytes, bytes]], port: int) -> Iterator[tuple[bytes, bytes]]:
    """The headers, with an idempotency key that no other test has used."""
    for name, value in headers:
        if name == b"idempotency-key":
            yield name, hashlib.sha256(b"%d " % port + value).hexdigest().encode()
        else:
            yield name, value


def _read(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return body
