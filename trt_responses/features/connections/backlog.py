"""Accepts all connections that wait, in one turn of the event loop.

uvloop accepts one connection a turn, so that the last of a burst of new clients would wait for as
many turns as there are clients. Knows sockets; knows no HTTP.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

AT_ONCE = 64
"""Connections that are accepted in one turn, at some 0.1 ms each."""


class Backlog:
    """The connections that wait at the listening sockets."""

    def __init__(self, listening: Sequence[socket.socket] = ()) -> None:
        self._listening = listening
        self._opening: set[asyncio.Task[None]] = set()
        self._own = 0
        """Connections accepted here that have yet to be made: they call `accept`, too."""

    def listen(self, listening: Sequence[socket.socket]) -> None:
        """Accept what waits at these sockets from now on."""
        self._listening = listening

    def accept(self, new_protocol: Callable[[], asyncio.Protocol]) -> None:
        """Accept what else waits. Called by each connection when it is made."""
        if self._own:
            self._own -= 1
            return
        for listening in self._listening:
            while self._own < AT_ONCE and (accepted := _accepted(listening)) is not None:
                self._own += 1
                opening = asyncio.ensure_future(_open(new_protocol, accepted))
                self._opening.add(opening)
                opening.add_done_callback(self._opening.discard)


def _accepted(listening: socket.socket) -> socket.socket | None:
    """A connection that waits. None where there is none, or where the event loop has to see why it
    cannot be accepted."""
    try:
        accepted, _ = listening.accept()
    except OSError:
        return None
    accepted.setblocking(False)
    return accepted


async def _open(new_protocol: Callable[[], asyncio.Protocol], accepted: socket.socket) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(new_protocol, accepted)
    except OSError:  # it has gone meanwhile
        accepted.close()
