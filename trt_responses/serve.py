"""Runs the app under uvicorn: says where it listens, and ends in order when it is told to.

The order of an end: refuse new work, let running work go on until the deadline, fail what is left,
then close. Knows the app's runs; knows no request.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import uvicorn

from trt_responses.app import create_app
from trt_responses.errors import ApiError

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI

    from trt_responses.response.runs import Runs
    from trt_responses.settings import Settings

CLOSING_S = 5
"""What connections get, after the last run has ended, to take the last bytes."""


class Server(uvicorn.Server):
    """uvicorn's, with a line when it is up and a drain when it goes down."""

    def __init__(self, config: uvicorn.Config, runs: Runs, drain_s: float, hello: str) -> None:
        super().__init__(config)
        self._runs = runs
        self._drain_s = drain_s
        self._hello = hello

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(self._hello.format(base=self._base()), flush=True)

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
    logging.basicConfig(level=settings.log_level.upper(), format="%(levelname)s %(message)s")
    app = create_app(settings)
    server = Server(_config(app, settings), app.state.runs, settings.drain_s, _hello(app))
    logging.getLogger("uvicorn.error").addFilter(_without_traceback)
    try:
        server.run()
    except KeyboardInterrupt:  # uvicorn raises what stopped it again, when all is closed
        return 0
    if app.state.startup_error is not None:
        raise app.state.startup_error
    return 0 if server.started else 1


def _config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning" if settings.log_level == "info" else settings.log_level,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=int(settings.drain_s) + CLOSING_S,
    )


def _hello(app: FastAPI) -> str:
    body = f'{{{{"model": "{app.state.model}", "input": "Hello!"}}}}'
    return (
        "{base} is ready; try: "
        f"curl -s {{base}}/v1/responses -H 'content-type: application/json' -d '{body}'"
    )


def _without_traceback(record: logging.LogRecord) -> bool:
    """A start that fails is told in one sentence, by `serve`'s caller, not as a stack."""
    return not (record.exc_info or "Traceback" in record.getMessage())
