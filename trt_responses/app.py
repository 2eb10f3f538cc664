"""The app: the parts of a server joined, started and stopped."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from trt_responses import __version__
from trt_responses.backends.engines import engine_of
from trt_responses.errors import StartupError
from trt_responses.settings import Settings
from trt_responses.setup.engine import Given
from trt_responses.setup.parts import mint, server_parts
from trt_responses.setup.routes import add_routes
from trt_responses.web.framework import App
from trt_responses.web.headers import Origins, ReplyHeaders
from trt_responses.web.middleware import Middleware

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from fastapi import FastAPI

    from trt_responses.dialect import Dialect
    from trt_responses.engine import Engine
    from trt_responses.prepare.shelf.shelf import Selection
    from trt_responses.setup.parts import ServerParts
    from trt_responses.store import Store
    from trt_responses.tool import Tool


ENGINE_STOP_S = 5.0
"""Seconds that an engine gets to stop, after every response has had its own time."""


def create_app(
    settings: Settings | None = None,
    *,
    engine: Engine | None = None,
    speaks: Dialect | None = None,
    store: Store | None = None,
    tools: Sequence[Tool] | None = None,
    engine_of: Callable[[Selection, Settings], Engine] = engine_of,
    given: Given | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> FastAPI:
    """The server as an ASGI app. An engine, a store and tools that are passed in are started and
    stopped with it, as those named in the settings are. `speaks` is what the model of such an
    engine speaks, if not Harmony. `engine_of` makes the engine that the settings name. `given`, in
    place of an engine, is for programs that bring more; `sleep` is awaited for every wait."""
    settings = settings or Settings.from_environment()
    given = given or Given(engine, speaks=speaks)
    server = server_parts(settings, given, store, tools, engine_of, given.counts, sleep)
    app = App(
        title="trt_responses",
        version=__version__,
        description="The OpenAI Responses API for gpt-oss style models.",
        lifespan=_lifespan(server),
    )
    app.state.runs, app.state.model = server.runs, server.model
    app.state.metrics, app.state.exchange = server.telemetry.metrics, server.exchange
    app.state.health, app.state.lifecycle = server.health, server.lifecycle
    app.state.last_answers = _nothing_more
    origins = Origins(server.settings.allowed_origins)
    headers = ReplyHeaders(time.monotonic_ns, origins, server.lifecycle)
    add_routes(app, server, headers)
    app.add_middleware(
        Middleware,
        clock_ns=time.monotonic_ns,
        mint=mint,
        origins=origins,
        headers=headers,
        listeners=(server.telemetry.metrics, server.telemetry.request_log),
    )
    return app


def _lifespan(server: ServerParts) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    drain_s = server.settings.drain_s
    lives: list[Callable[[], AbstractAsyncContextManager[object]]] = [
        *([server.watched.life] if server.watched else []),
        server.keep_alive.life,
        server.repeats.life,
        *([server.telemetry.traces.life] if server.telemetry.traces else []),
        server.telemetry.token_gaps.life,
        server.stall_watch.life,
        server.locks.life,
        partial(server.background.life, drain_s),
        server.exchange.life,
    ]

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        await _start(server)
        try:
            async with AsyncExitStack() as stack:
                for part in lives:
                    await stack.enter_async_context(part())
                server.lifecycle.ready()
                yield
                server.lifecycle.drain(0)
        finally:
            server.runs.shut_down()
            await server.engine.stop(min(drain_s, ENGINE_STOP_S))
            await app.state.last_answers()
            await _stop_tools(server)
            await server.parts.dialect.close()
            await server.store.stop()

    return life


async def _start(server: ServerParts) -> None:
    """Open the history and load the engine, or leave nothing behind."""
    lifecycle = server.lifecycle
    lifecycle.start()
    try:
        lifecycle.step("opening the history")
        await server.store.start()
        for tool in server.tools:
            lifecycle.step(f"preparing the tool {tool.name}")
            await tool.start()
        lifecycle.step("loading the engine")
        await server.engine.start()
    except StartupError as error:
        lifecycle.fail(str(error))
        await _stop_tools(server)
        await server.store.stop()
        raise
    except asyncio.CancelledError:  # it is to be stopped before it has started
        await server.engine.stop(0)
        await _stop_tools(server)
        await server.store.stop()
        raise


async def _nothing_more() -> None:
    """Stands for what a server still answers once the engine has stopped; the store is open."""


async def _stop_tools(server: ServerParts) -> None:
    for tool in server.tools:
        await tool.stop()
