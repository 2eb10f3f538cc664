"""Bodies of `tests.support.bodies`, played against an app in memory: over HTTP or a WebSocket."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tests.support.asgi import JSON
from tests.support.bodies import SOCKET
from tests.support.boxed import no_box
from tests.support.served import ANSWER, script, served
from tests.support.sockets import TERMINAL, Socket
from tests.support.steering import GUIDES
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from starlette.types import Message

    from tests.support.asgi import Client
    from tests.support.bodies import Body
    from tests.support.scripted.script import Script
    from tests.support.served import Served
    from trt_responses.engine import GenerateOptions

PIECE = 64 * 1024
"""What a server's socket gives at once."""
ENDS = tuple(f'"type":"{end}"' for end in (*TERMINAL, "error", "response.steer.failed"))

WORDS = 500
"""Characters at both ends of a frame within which its type stands."""


class Reply(NamedTuple):
    """The server's reply to a body. `code` is its error's, or the error's type; else empty."""

    status: int
    code: str
    said: bytes


class RawSocket(Socket):
    """Reads no frame but the last, so that a client's work does not count as the server's."""

    last = ""

    async def _send(self, message: Message) -> None:
        text = message.get("text", "")
        if any(end in text[:WORDS] or end in text[-WORDS:] for end in ENDS):
            self.last = text
        self._news.set()


@asynccontextmanager
async def hosted() -> AsyncIterator[Served]:
    """An app that has all that bodies are sent to, but containers where there is no box."""
    with tempfile.TemporaryDirectory() as folder:
        boxed: dict[str, Any] = {} if no_box() else {"python": "boxed", "data_dir": Path(folder)}
        async with served(_answer, guides=GUIDES, **boxed) as s:
            yield s


def _answer(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    """A whole answer, or its text alone if the prompt ends with its header."""
    whole = prompt_ids[-1] != CONTROL.message
    return script(ANSWER if whole else "Hello there, friend.<|return|>")


@asynccontextmanager
async def stage(s: Served, body: Body) -> AsyncIterator[Callable[[bytes], Awaitable[Reply]]]:
    """What plays a body's bytes; all that must be there before is made, and removed after."""
    if body.path == SOCKET:
        socket = RawSocket(s.app, {}, "/v1/responses")
        try:
            yield partial(_frame, socket)
        finally:
            socket.leave()
            await socket.done()
        return
    made: dict[str, str] = {}
    for kind in ("conversation", "container"):
        if f"{{{kind}}}" in body.path:
            call = await s.client.send("POST", f"/v1/{kind}s", b'{"name":"mine"}')
            made[kind] = call.json()["id"]
    yield partial(_body, s.client, body.path.format(**made), body.content_type)
    if body.path.startswith("/v1/containers"):
        left = await s.client.get("/v1/containers")
        for container in left.json().get("data", ()):
            await s.client.send("DELETE", f"/v1/containers/{container['id']}")


async def _body(client: Client, path: str, content_type: str, data: bytes) -> Reply:
    parts = [data[n : n + PIECE] for n in range(0, len(data), PIECE)]
    call = await client.send("POST", path, parts, JSON | {"content-type": content_type})
    error = None if call.status == 200 else call.json().get("error")
    code = (error.get("code") or error["type"]) if isinstance(error, dict) else ""
    return Reply(call.status, code, call.body)


async def _frame(socket: RawSocket, data: bytes) -> Reply:
    socket.send(data.decode())
    await socket.until(lambda _: bool(socket.last))
    last = orjson.loads(socket.last)
    if last["type"] in TERMINAL:
        return Reply(200, "", b"")
    error = last["error"]
    return Reply(last.get("status", 400), error.get("code") or error["type"], str(error).encode())
