"""Comment lines in streams that have been silent, so that no proxy closes them; and events, for
clients that count nothing else and begin anew.

One task for all streams: a token costs nothing here. Knows writers; knows no log and no clock but
the `sleep` it is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from trt_responses.tasks import beside

COMMENT = b": keep-alive\n\n"
NOWHERE = -1
"""The position of a writer before the first look."""
LOOKS = 4
"""Looks within the time of silence: a comment comes at most a quarter of it late."""


class Silent(Protocol):
    """A writer that may be silent for long."""

    def place(self) -> int:
        """A number that changes whenever something was written."""
        ...

    def ping(self, *, event: bool) -> None:
        """Show that the connection lives: by a comment, or by an event."""
        ...


class _Over(NamedTuple):
    """A block during which a writer is looked at."""

    writers: dict[Silent, tuple[int, int]]
    writer: Silent

    def __enter__(self) -> None:
        self.writers[self.writer] = (NOWHERE, 0)

    def __exit__(self, *_: object) -> None:
        del self.writers[self.writer]


class KeepAlive:
    """Looks at all writers four times in `every_s`, and pings those that were silent for so
    long; by an event, once their silence has lasted `event_s`."""

    def __init__(
        self,
        every_s: float,
        event_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.every_s = every_s
        self._pings_to_event = max(1, round(event_s / every_s))
        self._look_s = every_s / LOOKS
        self._sleep = sleep
        self._writers: dict[Silent, tuple[int, int]] = {}

    def is_event(self, pings: int) -> bool:
        """Whether this one of the pings of a silence is an event."""
        return pings % self._pings_to_event == 0

    def over(self, writer: Silent) -> _Over:
        return _Over(self._writers, writer)

    def life(self) -> AbstractAsyncContextManager[object]:
        return beside(self._look())

    async def _look(self) -> None:
        while True:
            await self._sleep(self._look_s)
            for writer, (place, looks) in tuple(self._writers.items()):
                now = writer.place()
                silent = looks + 1 if now == place else 0
                pings, left = divmod(silent, LOOKS)
                if pings > 0 and not left:
                    writer.ping(event=self.is_event(pings))
                if writer in self._writers:
                    self._writers[writer] = (now, silent)
