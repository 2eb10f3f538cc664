"""One contender in a process of its own: `python -m bench.server ours 448 1`.

The floor runs under uvicorn, ours as it is served. Says its port on standard output when it is up,
and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import uvicorn

from bench import hosted
from bench.floor import floor
from bench.ours import SETTINGS, Playing
from bench.script import script
from trt_responses.serve.server import Server, bound, freeze_heap, run_server
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from fastapi import FastAPI

CONTENDERS = ("floor", "ours", "hop")


class TellingServer(uvicorn.Server):
    """uvicorn's, which tells its parent when it is up and follows it when it goes."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        freeze_heap()  # as a server does when it has started
        assert sockets is not None
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._leave)
        print(sockets[0].getsockname()[1], flush=True)

    def _leave(self) -> None:
        self.should_exit = True


def main(name: str, length: str, chunk: str) -> None:
    if name == "floor":
        _serve_floor(int(length), int(chunk))
        return
    settings = SETTINGS.model_copy(update={"port": 0, "log_level": "error"})
    threading.Thread(target=_follow_parent, daemon=True).start()
    with suppress(KeyboardInterrupt), bound(settings) as address:
        run_server(Server(_app(name, int(length), int(chunk)), settings), address)


def _app(name: str, length: int, chunk: int) -> FastAPI:
    if name == "hop":
        return hosted.app(length, chunk)
    return Playing().play(script(vocabularies.load(), length), chunk)


def _follow_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGINT)


def _serve_floor(length: int, chunk: int) -> None:
    vocabulary = vocabularies.load()
    config = uvicorn.Config(
        floor(vocabulary, script(vocabulary, length), chunk),
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
    )
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    TellingServer(config).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
