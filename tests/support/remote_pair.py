"""Both ends of an engine's socket on one event loop, so that a test can step the engine's clock."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trt_responses.engines.remote.client import RemoteEngine
from trt_responses.engines.remote.server import MAX_BEHIND_BYTES, EngineServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trt_responses.engine import Engine

VERSION = "1.0"


@asynccontextmanager
async def socket_served(
    engine: Engine,
    folder: Path,
    *,
    version: str = VERSION,
    max_behind_bytes: int = MAX_BEHIND_BYTES,
) -> AsyncIterator[EngineServer]:
    """The server of an engine, at a socket in the folder; it is started and stopped here."""
    path = str(folder / "engine.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        server = EngineServer(engine, version, max_behind_bytes=max_behind_bytes)
        await engine.start()
        await server.start(listening)
        try:
            yield server
        finally:
            await engine.stop(1)
            await server.stop()


def path_of(server: EngineServer) -> str:
    assert server.path is not None
    return server.path


@asynccontextmanager
async def front_end(server: EngineServer) -> AsyncIterator[RemoteEngine]:
    remote = RemoteEngine(VERSION, path=path_of(server))
    await remote.start()
    try:
        yield remote
    finally:
        await remote.stop(1)
