"""The app: the parts of a server joined, started and stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from fastapi import FastAPI

from trt_responses import __version__
from trt_responses.backends.engines import engine_of
from trt_responses.dialect import Dialect
from trt_responses.engine import Engine
from trt_responses.errors import StartupError
from trt_responses.feature import Feature
from trt_responses.prepare.shelf.shelf import Selection
from trt_responses.run.parts import mint
from trt_responses.settings import Settings
from trt_responses.setup.engine import Given, served_engine
from trt_responses.setup.installed import install_all
from trt_responses.setup.routes import add_routes
from trt_responses.setup.server import Server
from trt_responses.store import Store
from trt_responses.tool import Tool
from trt_responses.web.framework import App
from trt_responses.web.middleware import Middleware

ENGINE_STOP_S = 5.0
"""Seconds that an engine gets to stop, after every response has had its own time."""


def create_app(
    settings: Settings | None = None,
    *,
    engine: Engine | None = None,
    speaks: Dialect | None = None,
    store: Store | None = None,
    tools: Sequence[Tool] | None = None,
    features: Sequence[Feature] = (),
    engine_of: Callable[[Selection, Settings], Engine] = engine_of,
    given: Given | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> FastAPI:
    """The server as an ASGI app, for a program that embeds it.

    `settings` are those of the environment if none are given. `engine`, `store` and `tools` take
    the place of those that the settings name, and are started and stopped with the app. `speaks` is
    the dialect of the engine's model, if that is not Harmony. `features` come to those that are
    installed.

    The app serves within its lifespan alone, as uvicorn runs it: `with TestClient(app) as client`.

    `engine_of` makes the engine of a prepared directory; `given`, in place of an engine, is for
    programs that bring more; `sleep` is awaited for every wait.
    """
    settings = settings or Settings.from_environment()
    served = served_engine(settings, given or Given(engine, speaks=speaks), engine_of)
    server = Server(settings, served, store, tools, sleep)
    server.features += features
    install_all(server)
    server.build()
    app = App(
        title="trt_responses",
        version=__version__,
        description="The OpenAI Responses API for gpt-oss style models.",
        lifespan=_lifespan(server),
    )
    app.state.server, app.state.runs, app.state.model = server, server.runs, served.model
    app.state.lifecycle, app.state.last_answers = server.lifecycle, _nothing_more
    add_routes(app, server)
    app.add_middleware(
        Middleware,
        clock_ns=time.monotonic_ns,
        mint=mint,
        headers=server.headers,
        ended=tuple(server.request_ended),
        preflight=server.preflight,
    )
    for layer in server.layers:
        app.add_middleware(layer)
    return app


def _lifespan(server: Server) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    drain_s = server.settings.drain_s

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        await _start(server)
        try:
            async with AsyncExitStack() as stack:
                for part in server.lives:
                    await stack.enter_async_context(part())
                server.lifecycle.ready()
                yield
                server.lifecycle.drain(0)
        finally:
            server.runs.shut_down()
            await server.parts.engine.stop(min(drain_s, ENGINE_STOP_S))
            await app.state.last_answers()
            await _stop_tools(server)
            await server.parts.dialect.close()
            await server.store.stop()

    return life


async def _start(server: Server) -> None:
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
        await server.parts.engine.start()
    except StartupError as error:
        lifecycle.fail(str(error))
        await _stop_tools(server)
        await server.store.stop()
        raise
    except asyncio.CancelledError:  # it is to be stopped before it has started
        await server.parts.engine.stop(0)
        await _stop_tools(server)
        await server.store.stop()
        raise


async def _nothing_more() -> None:
    """Stands for what a server still answers once the engine has stopped; the store is open."""


async def _stop_tools(server: Server) -> None:
    for tool in server.tools:
        await tool.stop()
