"""A server whose engine writes one long answer, an id every few milliseconds, to be killed.

`python -m tests.support.paced_server STORE` says its port once it listens. Without a store it loads
everything, and forks a server for each line that it reads, which is a store and a folder for files:
the server says its process id, and then its port.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from tests.support.greedy import Model
from tests.support.scripted.engine import ScriptedEngine, StepClock
from tests.support.served import ids, script
from trt_responses.app import create_app
from trt_responses.settings import Settings

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

WORDS = 200
TEXT = "".join(f" {number}" for number in range(WORDS))
STEP_S = 0.005
SETTINGS = {
    "model": "demo",
    "date": "2026-02-03",
    "lease_s": 1.0,
    "takeover_s": 60.0,
    "drain_s": 0.1,
}


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, clock: StepClock) -> None:
        super().__init__(config)
        self._clock = clock

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)

    @asynccontextmanager
    async def pacing(self) -> AsyncIterator[None]:
        async def step() -> None:
            while True:
                await asyncio.sleep(STEP_S)  # slept: it lives until a test kills it
                await self._clock.step()

        stepping = asyncio.create_task(step())
        yield
        stepping.cancel()

    async def main_loop(self) -> None:
        async with self.pacing():
            await super().main_loop()


def serve(store: str, *files: str) -> None:
    clock = StepClock.manual(settle_turns=1)
    model = Model(ids(f"<|channel|>final<|message|>{TEXT}<|return|>"))
    app = create_app(
        Settings(**SETTINGS, store=store, files=Path(*files) if files else None),
        engine=ScriptedEngine(model, clock=clock),
    )
    config = uvicorn.Config(app, port=0, log_level="error", ws="none", access_log=False)
    Server(config, clock).run()


def serve_each_line() -> None:
    engine = ScriptedEngine([script(TEXT)])
    create_app(Settings(**SETTINGS, store="memory://"), engine=engine)  # loads the language
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody else waits for them
    for line in sys.stdin:
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            print(os.getpid(), flush=True)
            serve(*line.split())
            os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1])
    else:
        serve_each_line()
