"""Calls an async function at once, in whatever runs now: a task only for what has to wait.

For `send`, which is called for every engine step: a server that need not wait takes the bytes and
returns, and a task's turn of the loop would cost more than all else that is done for a token
(`make bench`). Knows neither bytes nor servers. Python 3.12's eager tasks are the same idea.

    call = calls(send).send
    asked = call(message)            # begins at once; `IDLE` when it is over
    await rest(calls, asked)         # else: in a task, before the next call
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

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
        yield from call(argument).__await__()
