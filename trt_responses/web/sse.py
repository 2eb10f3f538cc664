"""A log as server-sent events. Knows frames and connections; knows no model and no store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trt_responses.response.log import END_OF_STREAM, Cursor

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from trt_responses.response.log import Log
    from trt_responses.response.run import Run
    from trt_responses.response.runs import Runs

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "x-accel-buffering": "no",  # nginx would otherwise hold tokens back
}


class Stream:
    """Makes a run and writes it down while it is made. When the client leaves, the run ends."""

    def __init__(self, run: Run, runs: Runs, headers: Callable[[], dict[str, str]]) -> None:
        self._run = run
        self._runs = runs
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(start_message(200, self._headers() | STREAM_HEADERS))
        async with asyncio.TaskGroup() as tasks:
            making = tasks.create_task(self._runs.make(self._run))
            watching = tasks.create_task(cancel_when_left(self._run, receive))
            # A task of its own: a wake would else pass through every caller's frame (1 µs).
            await tasks.create_task(write(self._run.log, send))
            await making
            watching.cancel()


async def write(log: Log, send: Send) -> None:
    """Everything in the log, to its end: one send for what each engine step brought."""
    cursor = Cursor(log)
    while True:
        # Both asked for before the taking: what comes while `send` waits is not missed.
        news, last = log.changed(), log.closed
        if frames := cursor.take():
            await send({"type": "http.response.body", "body": frames, "more_body": True})
        if last:
            break
        await news
    await send({"type": "http.response.body", "body": END_OF_STREAM})


async def cancel_when_left(run: Run, receive: Receive) -> None:
    """The owner of a foreground run is its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
    run.cancel()


def start_message(status: int, headers: dict[str, str]) -> dict[str, object]:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": raw}
