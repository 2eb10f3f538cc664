"""A burst of new connections is accepted in a few turns of either event loop."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, cast

import pytest
import uvloop

from tests.support.turns import turn as another_turn
from trt_responses.features.connections.backlog import AT_ONCE, Backlog

if TYPE_CHECKING:
    from collections.abc import Callable

WITHIN_S = 30


class Noted(asyncio.Protocol):
    """A connection that notes the turn in which it was made."""

    def __init__(self, backlog: Backlog, made: Callable[[], None]) -> None:
        self._backlog = backlog
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._made()
        self._backlog.accept(lambda: Noted(self._backlog, self._made))

    def data_received(self, data: bytes) -> None:
        self._transport.write(data.upper())


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_all_that_wait_are_accepted_in_a_few_turns(
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story() -> None:
        loop, turn, made, all_made = asyncio.get_running_loop(), 0, list[int](), asyncio.Event()

        def note() -> None:
            made.append(turn)
            if len(made) == AT_ONCE:
                all_made.set()

        listening = socket.create_server(("127.0.0.1", 0), backlog=AT_ONCE)
        backlog = Backlog([listening])
        host, port = listening.getsockname()
        clients = [await asyncio.open_connection(host, port) for _ in range(AT_ONCE)]
        server = await loop.create_server(lambda: Noted(backlog, note), sock=listening)
        async with asyncio.timeout(WITHIN_S):
            while not all_made.is_set():
                await another_turn()
                turn += 1
            for reader, writer in clients:
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"HELLO"
                writer.close()
                await writer.wait_closed()
        server.close()
        assert made[-1] - made[0] < AT_ONCE // 2

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(story())


def test_a_listening_socket_that_is_closed_has_nothing_more() -> None:
    async def story() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.close()
        Backlog([listening]).accept(asyncio.Protocol)

    asyncio.run(story())
