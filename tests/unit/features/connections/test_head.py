"""The head of a reply and the first bytes of its body leave in one write."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from tests.support.turns import turn
from trt_responses.features.connections.head import hold_head

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class Wire:
    """A transport that notes what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class Reply:
    """As much of uvicorn's reply as knows its transport."""

    def __init__(self, wire: Wire) -> None:
        self.transport: Any = wire
        self.response_started = False
        hold_head(cast("RequestResponseCycle", self), asyncio.get_running_loop())

    def write_head(self) -> None:
        self.response_started = True
        self.transport.write(b"head")


def test_the_head_and_the_first_bytes_are_one_write_and_nothing_is_held_later() -> None:
    async def story() -> None:
        reply = Reply(wire := Wire())
        reply.write_head()
        assert wire.written == []
        reply.transport.write(b" and body")
        assert wire.written == [b"head and body"]
        assert reply.transport is wire
        await turn()
        assert wire.written == [b"head and body"]

    asyncio.run(story())


def test_a_head_without_a_body_leaves_in_the_next_turn() -> None:
    async def story() -> None:
        reply = Reply(wire := Wire())
        reply.write_head()
        await turn()
        assert wire.written == [b"head"]
        reply.transport.write(b"late")
        assert wire.written == [b"head", b"late"]

    asyncio.run(story())


def test_what_stands_before_the_head_waits_for_nothing() -> None:
    async def story() -> None:
        reply = Reply(wire := Wire())
        reply.transport.write(b"100 Continue")
        assert wire.written == [b"100 Continue"]
        reply.write_head()
        reply.transport.write(b"!")
        assert wire.written == [b"100 Continue", b"head!"]

    asyncio.run(story())


def test_a_connection_that_is_closed_behind_the_head_still_gets_it() -> None:
    async def story() -> None:
        reply = Reply(wire := Wire())
        reply.write_head()
        reply.transport.close()
        assert (wire.written, wire.closed) == ([b"head"], True)

    asyncio.run(story())


def test_nothing_is_written_to_a_connection_that_was_closed_meanwhile() -> None:
    async def story() -> None:
        reply = Reply(wire := Wire())
        reply.write_head()
        wire.close()
        await turn()
        assert wire.written == []

    asyncio.run(story())
