"""Replies whose head leaves with the first bytes of the body: a write to a socket takes 20 µs.

Where no body comes in the same turn of the loop, the head leaves alone. Knows uvicorn's replies;
knows no header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from weakref import ref

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def hold_head(cycle: RequestResponseCycle, loop: asyncio.AbstractEventLoop) -> None:
    """Have the reply hold its head until its first bytes, and nothing after that."""
    cycle.transport = cast("asyncio.Transport", _HeldHead(cycle, loop))


class _HeldHead:
    """The transport of a reply that has not begun, as far as uvicorn uses one."""

    __slots__ = ("_alone", "_cycle", "_head", "_loop", "_transport")

    def __init__(self, cycle: RequestResponseCycle, loop: asyncio.AbstractEventLoop) -> None:
        self._cycle = ref(cycle)
        self._transport = cycle.transport
        self._loop = loop
        self._head = b""
        self._alone: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        cycle = self._cycle()
        if cycle is None or not cycle.response_started:
            self._transport.write(data)  # such as 100 Continue
        elif self._alone is None:
            self._head = data
            self._alone = self._loop.call_soon(self._leave)
        else:
            self._alone.cancel()
            self._leave(data)

    def _leave(self, first: bytes = b"") -> None:
        if (cycle := self._cycle()) is not None:
            cycle.transport = self._transport
        head, self._head = self._head, b""
        if not self._transport.is_closing():
            self._transport.write(head + first)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        if self._head and self._alone is not None:
            self._alone.cancel()
            self._leave()
        self._transport.close()
