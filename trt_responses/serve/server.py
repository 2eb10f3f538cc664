"""The server: the app under uvicorn, which says where it listens and ends in order.

The order of an end: serve on while proxies learn of it, refuse new work, let running work go on
until the deadline, fail what is left, flush the history, stop the engine, close the sockets.
Knows the app's life; knows no request.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import shlex
import signal
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import uvicorn

from trt_responses.errors import StartupError, UsageError
from trt_responses.files import close_folder_to_others
from trt_responses.serve.drain import Drain

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from fastapi import FastAPI

    from trt_responses.engine import Engine
    from trt_responses.health.lifecycle import Lifecycle
    from trt_responses.settings import Settings

    Tell = Callable[[str, str], None]
    """Tells who started this process of a state, in their words and in ours."""

logger = logging.getLogger(__name__)

CLOSING_S = 5
"""Seconds that connections get to take the last bytes, after the last run has ended."""
PING_S = 20.0
"""Seconds between pings of a WebSocket, so that no proxy takes the connection for dead. The pong is
not awaited: some clients read nothing between two responses, and TCP tells of those that are gone.
"""
LAST_ACCEPT_S = 0.1
"""Seconds in which bytes that clients had sent before the socket closed are still answered."""
YOUNG_OBJECTS = 50_000
"""New objects before a collection, what 128 requests hold at once. With Python's 700, requests that
come together are collected while they run, to no end: 64 at once pay 55 µs each, 256 pay 130."""
ABANDON_S = 1.5
"""Seconds that a start gets to end on shutdown; then the process ends as it is."""


class LostEngineError(StartupError):
    """The server has ended since its engine is beyond recovery."""


class Server(uvicorn.Server):
    """uvicorn's server, which listens before the engine is loaded and stops listening last.

    uvicorn runs no lifespan: the app's life is a task beside the connections, so that they
    are answered while it starts and ends. With `listen_when_ready` it listens last: siblings on the
    same address answer meanwhile.
    """

    def __init__(
        self,
        app: FastAPI,
        settings: Settings,
        tell: Tell | None = None,
        *,
        listen_when_ready: bool = False,
    ) -> None:
        super().__init__(_config(app, settings))
        self._listen_when_ready = listen_when_ready
        self._app = app
        self._lifecycle: Lifecycle = app.state.lifecycle
        self._engine: Engine = app.state.server.parts.engine
        sockets = app.state.sockets
        self._drain = Drain(
            self._lifecycle,
            app.state.runs,
            drain_s=settings.drain_s,
            end_connections=sockets.drain if sockets else lambda: None,
        )
        self._linger_s = settings.linger_s
        self._tell = tell or (lambda state, status: None)
        self._life: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        app.state.last_answers = self._last_answers
        self.lost: str | None = None
        """The reason why the engine is beyond recovery, if it is."""
        self.fault: BaseException | None = None
        """The error that ended the app's life before its time: a start that failed."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []
        if not self._listen_when_ready:
            await self._listen(sockets)
        self.started = True
        self._life = asyncio.create_task(self._live(sockets))

    async def _listen(self, sockets: list[socket.socket] | None) -> None:
        await super().startup(sockets)
        for listen in self._app.state.server.on_listen:
            listen(sockets or ())

    async def _live(self, sockets: list[socket.socket] | None) -> None:
        """Live the app's life, from its start to its end."""
        async with self._app.router.lifespan_context(self._app):
            freeze_heap()
            if not self._lifecycle.draining:
                if self._listen_when_ready:
                    await self._listen(sockets)
                base = self._base()
                self._tell("READY=1", f"ready at {base}")
                try:
                    print(_hello(self._app, base), flush=True)
                except OSError as error:
                    logger.warning("cannot print to standard output: %s", error.strerror)
            await self._ending.wait()

    def _base(self) -> str:
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal: readiness goes at once. uvicorn would take a second one as an order to
        drop everything."""
        self._drain.begin(0.0 if sig == signal.SIGINT else self._linger_s)
        if not self.should_exit:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Called every tenth of a second. Returns whether it is time to end. A process whose engine
        is lost ends, to be started anew."""
        life, engine = self._lifecycle, self._engine.health()
        if self._life is not None and self._life.done():
            return True  # the start has failed
        if life.was_ready and (life.state == "failed" or not engine.alive):
            self.lost = life.reason or engine.reason or "the engine is not ready"
            life.fail(self.lost)
            return True
        return await super().on_tick(counter) or self._lifecycle.draining

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish the work, end the app's life, and close the sockets last."""
        if not self._lifecycle.draining:
            self._drain.begin(0.0)
        self._tell("STOPPING=1", "stopping")
        if self._lifecycle.was_ready:
            await self._drain.finish()
            self._lifecycle.end_streams()
            await self._answered()
        else:
            self._lifecycle.close()
        await self._end_life()
        await super().shutdown(sockets)

    async def _last_answers(self) -> None:
        """Listen no more, and answer what has come: what is stored can be read to the last."""
        for server in self.servers:
            server.close()
        await asyncio.sleep(LAST_ACCEPT_S)
        await self._answered()
        self._lifecycle.close()

    async def _answered(self) -> None:
        """Wait until the requests that are being answered have been; others may come meanwhile."""
        if tasks := set(self.server_state.tasks):
            await asyncio.wait(tasks, timeout=CLOSING_S)

    async def _end_life(self) -> None:
        """Flush the history and stop the engine. A start is cut short; one that does not notice,
        since its thread is loading, is left to the end of the process."""
        assert self._life is not None
        self._ending.set()
        if not self._lifecycle.was_ready:
            self._life.cancel()
            await asyncio.wait((self._life,), timeout=ABANDON_S)
            if not self._life.done():
                logger.warning("shutdown timeout: the engine is still loading; exiting")
                os._exit(0)
        await asyncio.wait((self._life,))
        if not self._life.cancelled():
            self.fault = self._life.exception()


def freeze_heap() -> None:
    """Keep what is loaded by now out of the garbage collector: it lives as long as the process, and
    a full collection would hold the loop while it walks all of it. Collections are rare besides: a
    request makes no cycles, and its objects are new to the collector as long as it runs."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def serve(
    settings: Settings,
    app_of: Callable[[Settings], FastAPI],
    handed: socket.socket | None = None,
    tell: Tell | None = None,
) -> int:
    """Serve the app of these settings until stopped, and return the exit status. A start that fails
    says why in one sentence. `handed` is a socket that listens already."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with handed or bound(settings) as address:
            close_folder_to_others(settings.data_dir)
            run_server(Server(app_of(lasting(settings)), settings, tell), address)
    except KeyboardInterrupt:  # uvicorn raises what stopped it again, when all is closed
        pass
    return 0


def run_server(server: Server, address: socket.socket) -> None:
    """Serve an app until stopped. Raises a `StartupError` when it could not start, and a
    `LostEngineError` when it could not go on."""
    server.run(sockets=[address])
    if server.fault is not None:
        raise server.fault
    if server.lost is not None:
        raise LostEngineError(f"The engine is lost and the server has ended: {server.lost}")


def lasting(settings: Settings) -> Settings:
    """The settings with a store that outlives the server, unless they name another."""
    if settings.store is not None:
        return settings
    return settings.model_copy(update={"store": f"sqlite:///{settings.data_dir / 'history.db'}"})


def bound(settings: Settings, *, shared: bool = False) -> socket.socket:
    """A socket bound to the address, before an engine is loaded: the address may be in use. It
    accepts no connection until the server listens. A shared one lets siblings bind to it too."""
    with ExitStack() as unless_bound:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                settings.host or None,
                settings.port,
                type=socket.SOCK_STREAM,
                flags=socket.AI_PASSIVE,
            )[0]
            opened = unless_bound.enter_context(socket.socket(family, kind, protocol))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            opened.bind(address)
        except (OSError, UnicodeError) as error:  # the second of a name that no host can have
            unknown = isinstance(error, (socket.gaierror, UnicodeError))
            name = settings.option("host" if unknown else "port")
            why = error.strerror if isinstance(error, OSError) else "not a host name"
            raise (UsageError if unknown else StartupError)(
                f"{name}: cannot listen on {settings.host}:{settings.port} ({why}); choose another "
                f"address with {settings.option('host')} and {settings.option('port')}."
            ) from None
        unless_bound.pop_all()
    return opened


def _config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    sockets, http = app.state.sockets, app.state.server.http
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=http(sockets.path if sockets else None) if http else "httptools",
        ws=sockets.protocol(settings.read_timeout_s) if sockets else "none",
        ws_max_size=settings.max_body_bytes,
        ws_ping_interval=PING_S,
        ws_ping_timeout=None,
        ws_per_message_deflate=False,  # each event would be held for its compressor
        log_level="warning" if settings.log_level == "info" else settings.log_level,
        access_log=False,
        log_config=None,  # its lines are ours
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=CLOSING_S,
    )


def _hello(app: FastAPI, base: str) -> str:
    body = shlex.quote(json.dumps({"model": app.state.model, "input": "Hello!"}))
    hints = ", ".join(app.state.server.hints).format(base=base)
    return (
        f"{base} is ready; {hints}, or try: "
        f"curl -s {base}/v1/responses -H 'content-type: application/json' -d {body}"
    )
