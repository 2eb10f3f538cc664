"""Calls of an async function that begin at once, without a task; only one that waits needs one.

This is for `send`, which is called for every engine step: a server that need not wait takes the
bytes and returns, and a task's turn of the loop would cost more than all else that is done for a
token (`make bench`). Knows neither bytes nor servers. Python 3.12's eager tasks are the same idea.

    sending = calls(send)
    waits_for = sending.send(message)     # begins at once; `IDLE` when the call is over
    await finish(sending, waits_for)      # otherwise, in a task, before the next call
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Self, TypeVar

Argument = TypeVar("Argument")

IDLE = object()
"""The answer of a call that is over."""


def calls(call: Callable[[Argument], Awaitable[None]]) -> Generator[object, Argument, None]:
    """A generator that makes one call for each argument sent to it. After a call that raises, it is
    over."""
    ready = _calls(call)
    next(ready)
    return ready


@types.coroutine
def finish(calls: Generator[object, Any, None], waits_for: object) -> Generator[object]:
    """Let this task wait for what the call waits for, until the call is over."""
    while waits_for is not IDLE:
        try:
            answer = yield waits_for
        except BaseException as error:  # a cancellation, too, is the call's to hear of
            waits_for = calls.throw(error)
        else:
            waits_for = calls.send(answer)


@types.coroutine
def _calls(call: Callable[[Argument], Awaitable[None]]) -> Generator[object, Argument, None]:
    while True:
        argument = yield IDLE
        waits_for = call(argument)
        if type(waits_for) is types.CoroutineType:  # a wrapper less to make and to go through
            yield from waits_for  # type: ignore[misc]  # which this kind of generator may
        else:
            yield from waits_for.__await__()


@types.coroutine
def _once(call: Callable[[], Coroutine[Any, Any, None]]) -> Generator[object, Any, None]:
    yield from call()
    yield IDLE


class StartedCall:
    """A call that begins with the `with` block and is ended with it, if it has not ended before.

    While it waits for a future it has no task: one is made when the future is done. A task that is
    made to wait, and then cancelled, costs 40 µs.
    """

    def __init__(
        self, call: Callable[[], Coroutine[Any, Any, None]], failed: Callable[[], None]
    ) -> None:
        self._calls = _once(call)
        self._failed = failed
        self._waits_for: object = IDLE
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._waits_for = self._calls.send(None)
        if isinstance(self._waits_for, asyncio.Future):
            self._waits_for.add_done_callback(self._go_on)
        elif self._waits_for is not IDLE:
            self._go_on()
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            return
        if isinstance(self._waits_for, asyncio.Future):
            self._waits_for.remove_done_callback(self._go_on)
        self._calls.close()

    def _go_on(self, _: object = None) -> None:
        self._task = asyncio.ensure_future(self._finish())
        self._task.add_done_callback(self._gone)

    async def _finish(self) -> None:
        await finish(self._calls, self._waits_for)

    def _gone(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._failed()
