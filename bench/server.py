"""One contender under uvicorn, in a process of its own: `python -m bench.server ours 448 1`.

Says its port on standard output when it is up, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import TYPE_CHECKING

import uvicorn

from bench import hosted
from bench.floor import floor
from bench.ours import Playing
from bench.script import script
from trt_responses.serve.server import freeze_heap
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from starlette.types import ASGIApp

CONTENDERS = ("floor", "ours", "hop")


class Server(uvicorn.Server):
    """uvicorn's, which tells its parent when it is up and follows it when it goes."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        freeze_heap()  # as a server does when it has started
        assert sockets is not None
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._leave)
        print(sockets[0].getsockname()[1], flush=True)

    def _leave(self) -> None:
        self.should_exit = True


def contender(name: str, length: int, chunk: int) -> ASGIApp:
    vocabulary = vocabularies.load()
    words = script(vocabulary, length)
    if name == "floor":
        return floor(vocabulary, words, chunk)
    if name == "hop":
        return hosted.app(length, chunk)
    playing = Playing()
    playing.play(words, chunk)
    return playing.app


def main(name: str, length: str, chunk: str) -> None:
    config = uvicorn.Config(
        contender(name, int(length), int(chunk)),
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
    )
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
