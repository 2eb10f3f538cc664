"""Calls an async function at once, in whatever runs now: a task only for what has to wait.

For `send`, which is called for every engine step: a server that need not wait takes the bytes and
returns, and a task's turn of the loop would cost more than all else that is done for a token
(`make bench`). Knows neither bytes nor servers. Python 3.12's eager tasks are the same idea.

    sending = calls(send)
    asked = sending.send(message)    # begins at once; `IDLE` when it is over
    await rest(sending, asked)       # else: in a task, before the next call
"""

from __future__ import annotations

import asyncio
import types
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from typing import Self

Argument = TypeVar("Argument")

IDLE = object()
"""What is answered when a call is over."""


def calls(call: Callable[[Argument], Awaitable[None]]) -> Generator[object, Argument, None]:
    """One call for each argument that is sent. A call that raises is the last one."""
    ready = _calls(call)
    next(ready)
    return ready


@types.coroutine
def rest(calls: Generator[object, Any, None], asked: object) -> Generator[object]:
    """Hand what the call waits for to this task, and what the task hears to the call."""
    while asked is not IDLE:
        try:
            answer = yield asked
        except BaseException as error:  # a cancellation, too, is the call's to hear of
            asked = calls.throw(error)
        else:
            asked = calls.send(answer)


@types.coroutine
def _calls(call: Callable[[Argument], Awaitable[None]]) -> Generator[object, Argument, None]:
    while True:
        argument = yield IDLE
        asked = call(argument)
        if type(asked) is types.CoroutineType:  # a wrapper less to make and to go through
            yield from asked  # type: ignore[misc]  # which this kind of generator may
        else:
            yield from asked.__await__()


class Begun:
    """One call that may be without end: it is begun at once, and ended with the block.

    While it waits for a future nobody waits for that: it has a task only from when the future is
    done. A task that is made to wait, and then cancelled, costs 40 µs.
    """

    def __init__(self, call: Callable[[], Awaitable[None]], failed: Callable[[], None]) -> None:
        self._calls: Generator[object, None, None] = calls(lambda _: call())
        self._failed = failed
        self._asked: object = IDLE
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._asked = self._calls.send(None)
        if isinstance(self._asked, asyncio.Future):
            self._asked.add_done_callback(self._go_on)
        elif self._asked is not IDLE:
            self._go_on()
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            return
        if isinstance(self._asked, asyncio.Future):
            self._asked.remove_done_callback(self._go_on)
        self._calls.close()

    def _go_on(self, _: object = None) -> None:
        self._task = asyncio.ensure_future(self._rest())
        self._task.add_done_callback(self._gone)

    async def _rest(self) -> None:
        await rest(self._calls, self._asked)

    def _gone(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._failed()
