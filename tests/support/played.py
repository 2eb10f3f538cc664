"""Bodies of `tests.support.bodies`, played against an app in memory: over HTTP or a WebSocket."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.bodies import CONVERSATION_ID, SOCKET
from tests.support.boxed import no_box
from tests.support.served import served
from tests.support.sockets import connected, is_last
from tests.support.steering import GUIDES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.support.asgi import Client
    from tests.support.served import Served
    from tests.support.sockets import Socket

PIECE = 64 * 1024
"""What a server's socket gives at once."""


class Reply(NamedTuple):
    """What the server said to a body. `code` is its error's, or the error's type; else empty."""

    status: int
    code: str
    said: bytes


@asynccontextmanager
async def hosted() -> AsyncIterator[Served]:
    """An app that has all that bodies are sent to, as far as it can be had here."""
    with tempfile.TemporaryDirectory() as folder:
        boxed: dict[str, Any] = {} if no_box() else {"python": "boxed", "data_dir": Path(folder)}
        async with served(guides=GUIDES, **boxed) as s:
            yield s


@asynccontextmanager
async def stage(s: Served, path: str) -> AsyncIterator[Callable[[bytes], Awaitable[Reply]]]:
    """What plays a body to this path; all that must be there before is made."""
    if path == SOCKET:
        async with connected(s.app) as socket:
            yield partial(_frame, socket)
        return
    if CONVERSATION_ID in path:
        made = await s.client.send("POST", "/v1/conversations", b"{}")
        path = path.replace(CONVERSATION_ID, made.json()["id"])
    yield partial(_body, s.client, path)


async def _body(client: Client, path: str, data: bytes) -> Reply:
    parts = [data[n : n + PIECE] for n in range(0, len(data), PIECE)]
    call = await client.send("POST", path, parts)
    error = None if call.status == 200 else call.json()["error"]
    code = (error.get("code") or error["type"]) if isinstance(error, dict) else ""
    return Reply(call.status, code, call.body)


async def _frame(socket: Socket, data: bytes) -> Reply:
    socket.send(data.decode())
    await socket.until(lambda s: any(map(is_last, s.frames)))
    last = socket.frames[-1]
    if last["type"] != "error":
        return Reply(200, "", b"")
    error = last["error"]
    return Reply(last["status"], error.get("code") or error["type"], str(error).encode())
