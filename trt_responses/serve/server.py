"""The server: the app under uvicorn, which says where it listens and ends in order.

The order of an end: refuse new work, let running work go on until the deadline, fail what is left,
then close. Knows the app's runs; knows no request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import signal
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import uvicorn

from trt_responses.app import create_app, mint
from trt_responses.errors import ApiError, StartupError
from trt_responses.serve.protocol import protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI

    from trt_responses.engine.base import Health
    from trt_responses.response.runs import Runs
    from trt_responses.settings import Settings

CLOSING_S = 5
"""What connections get, after the last run has ended, to take the last bytes."""


class Server(uvicorn.Server):
    """uvicorn's server, with a line on stdout when it is up and a drain when it goes down."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        super().__init__(_config(app, settings))
        self._runs: Runs = app.state.runs
        self._health: Callable[[], Health] = app.state.engine.health
        self._drain_s = settings.drain_s
        self._app = app
        self.lost: str | None = None
        """Why the engine is beyond recovery, if it is."""

    async def on_tick(self, counter: int) -> bool:
        """Called every tenth of a second: a process whose engine is lost ends, to be started
        anew."""
        health = self._health()
        if not health.alive:
            self.lost = health.reason or "it gave no reason"
            return True
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(_hello(self._app, self._base()), flush=True)

    def _base(self) -> str:
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._runs.draining = True
        stopped = ApiError("The server is being stopped and the response took too long.")
        deadline = asyncio.get_running_loop().call_later(
            self._drain_s, self._runs.fail_all, stopped
        )
        try:
            await super().shutdown(sockets)
        finally:
            deadline.cancel()


def serve(settings: Settings) -> int:
    """Serve until told to stop; the exit status. A start that fails says why in one sentence."""
    settings.check_exposure()
    with bound(settings) as address:
        return _serve(settings, address)


def _serve(settings: Settings, address: socket.socket) -> int:
    logging.basicConfig(level=settings.log_level.upper(), format="%(levelname)s %(message)s")
    app = create_app(_lasting(settings))
    server = Server(app, settings)
    logging.getLogger("uvicorn.error").addFilter(_without_traceback)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server.run(sockets=[address])
    except KeyboardInterrupt:  # uvicorn raises what stopped it again, when all is closed
        return 0
    except SystemExit:  # its way out of a start that failed
        if app.state.startup_error is None:
            raise
    if app.state.startup_error is not None:
        raise app.state.startup_error
    if server.lost is not None:
        raise StartupError(f"The engine is lost and the server has ended: {server.lost}")
    return 0 if server.started else 1


def _lasting(settings: Settings) -> Settings:
    """The settings with a store that outlives the server, unless they name another."""
    if settings.store is not None:
        return settings
    return settings.model_copy(update={"store": f"sqlite:///{settings.data_dir / 'history.db'}"})


def bound(settings: Settings) -> socket.socket:
    """A socket bound to the address, before an engine is loaded, for somebody may have the address.
    Nobody can connect until the server listens."""
    with ExitStack() as unless_bound:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                settings.host or None,
                settings.port,
                type=socket.SOCK_STREAM,
                flags=socket.AI_PASSIVE,
            )[0]
            taken = unless_bound.enter_context(socket.socket(family, kind, protocol))
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(address)
        except (OSError, UnicodeError) as error:  # the second of a name that no host can have
            why = error.strerror if isinstance(error, OSError) else "it is no host's name"
            raise StartupError(
                f"The server cannot listen on {settings.host}:{settings.port} ({why}): choose "
                "another address with --host and --port."
            ) from None
        unless_bound.pop_all()
    return taken


def _config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=protocol(
            mint,
            max_header_bytes=settings.max_header_bytes,
            read_timeout_s=settings.read_timeout_s,
        ),
        ws="none",  # an upgrade that is asked for is not made: the request is answered as HTTP
        log_level="warning" if settings.log_level == "info" else settings.log_level,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=int(settings.drain_s) + CLOSING_S,
    )


def _hello(app: FastAPI, base: str) -> str:
    body = shlex.quote(json.dumps({"model": app.state.model, "input": "Hello!"}))
    return (
        f"{base} is ready; try: "
        f"curl -s {base}/v1/responses -H 'content-type: application/json' -d {body}"
    )


def _without_traceback(record: logging.LogRecord) -> bool:
    """A log filter: a start that fails is told in one sentence by `serve`'s caller, not as a
    stack."""
    return not (record.exc_info or "Traceback" in record.getMessage())
