"""Starts few requests in one turn of the event loop, so that a burst does not hold the streams.

A request takes some 0.3 ms until the engine has it. Requests that come together would all be
started before a running stream gets its next token. Knows apps; knows no HTTP.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uvicorn._types import (
        ASGI3Application,
        ASGIReceiveCallable,
        ASGISendCallable,
        Scope,
    )

AT_ONCE = 8
"""Requests that are started in one turn."""


class Turns:
    """The order in which requests start: first come, first served."""

    def __init__(self) -> None:
        self._left = AT_ONCE
        self._waiting: deque[asyncio.Future[None]] = deque()

    def app(self, app: ASGI3Application) -> ASGI3Application:
        """The app as it is if a request may start in this turn, or else one that waits first."""
        loop = asyncio.get_running_loop()
        if self._left == AT_ONCE:
            loop.call_soon(loop.call_soon, self._next, loop)  # behind those of this turn
        if self._left:
            self._left -= 1
            return app
        turn = loop.create_future()
        self._waiting.append(turn)
        return partial(_later, turn, app)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left = AT_ONCE
        while self._waiting and self._left:
            if not (turn := self._waiting.popleft()).done():
                turn.set_result(None)
                self._left -= 1
        if self._left < AT_ONCE:
            loop.call_soon(self._next, loop)


async def _later(
    turn: asyncio.Future[None],
    app: ASGI3Application,
    scope: Scope,
    receive: ASGIReceiveCallable,
    send: ASGISendCallable,
) -> None:
    await turn
    await app(scope, receive, send)
