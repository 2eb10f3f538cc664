"""A client that asks for a stream and reads nothing, over a real socket. Budget: 2 s."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

import orjson

from tests.support.asgi import asked
from tests.support.scripted.engine import Script, ScriptedEngine
from tests.support.served import ids
from tests.support.serving import listening
from tests.support.ticks import settled

if TYPE_CHECKING:
    import pytest

WORDS = Script((ids("<|channel|>final<|message|>"), *(ids(" word") * 500,) * 200))
"""Some 18 MB of frames: more than the sockets hold."""


async def ended(engine: ScriptedEngine) -> str:
    while not engine.requests or engine.requests[0].state in ("waiting", "running"):
        await settled(1)
    return engine.requests[0].state


def test_who_reads_nothing_is_dropped_and_its_run_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        engine = ScriptedEngine([WORDS])
        async with listening(engine, max_backlog_bytes=1_000_000) as at:
            loop = asyncio.get_running_loop()
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.setblocking(False)
                await loop.sock_connect(client, (at.host, at.port))
                body = orjson.dumps(asked(stream=True))
                head = (
                    f"POST /v1/responses HTTP/1.1\r\nhost: {at.host}\r\n"
                    f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                )
                await loop.sock_sendall(client, head.encode() + body)
                assert await ended(engine) == "aborted"
                got = b""
                while piece := await loop.sock_recv(client, 1 << 20):
                    got += piece
            assert b"response.output_text.delta" in got
            assert b"[DONE]" not in got
            assert not got.endswith(b"0\r\n\r\n"), "a reply that was cut does not look whole"

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert "reads too slowly" in caplog.text
