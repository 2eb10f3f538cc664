"""An ASGI WebSocket client in memory, which behaves as uvicorn does where an app can tell."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
from openai.types.responses.responses_server_event import ResponsesServerEvent
from pydantic import TypeAdapter

from tests.support.asgi import PATIENCE_S, scope_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from starlette.types import ASGIApp, Message

Json = dict[str, Any]

SDK: TypeAdapter[Any] = TypeAdapter(ResponsesServerEvent)
TERMINAL = ("response.completed", "response.incomplete", "response.failed")


class Socket:
    """One connection: what it has got so far, each frame judged by the SDK's type."""

    def __init__(self, app: ASGIApp, headers: Mapping[str, str], path: str) -> None:
        scope = scope_of("GET", path, {"host": "127.0.0.1:8000"} | dict(headers))
        scope.update(type="websocket", scheme="ws", subprotocols=[])
        scope["extensions"] = {"websocket.http.response": {}}
        self.frames: list[Json] = []
        self.heard: list[Message] = []
        self.code: int | None = None
        self.reading = asyncio.Event()
        """While it is not set the client takes nothing, and `send` waits."""
        self.reading.set()
        self._left = False
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._to_app.put_nowait({"type": "websocket.connect"})
        self._news = asyncio.Event()
        self._app = asyncio.ensure_future(app(scope, self._to_app.get, self._send))
        self._app.add_done_callback(lambda _: self._news.set())

    def send(self, frame: str | bytes | Json) -> None:
        text = orjson.dumps(frame).decode() if isinstance(frame, dict) else frame
        key = "text" if isinstance(text, str) else "bytes"
        self._to_app.put_nowait({"type": "websocket.receive", key: text})

    def create(self, **fields: object) -> None:
        self.send({"type": "response.create", "model": "demo"} | fields)

    def leave(self, code: int = 1005) -> None:
        self._left = True
        self.reading.set()
        self._to_app.put_nowait({"type": "websocket.disconnect", "code": code})

    async def until(self, claim: Callable[[Socket], bool]) -> None:
        """Until it holds; fails when the connection is over and it does not."""
        async with asyncio.timeout(PATIENCE_S):
            while not claim(self):
                assert not self._app.done(), f"it is over: {self.frames[-3:]}"
                self._news.clear()
                await self._news.wait()

    async def answer(self, **fields: object) -> list[Json]:
        """Ask for a response and give its events, or the error that came instead."""
        before = len(self.frames)
        self.create(**fields)
        await self.until(lambda s: any(map(is_last, s.frames[before:])))
        return self.frames[before:]

    async def done(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._app

    def of(self, stream_id: str | None) -> list[Json]:
        """The frames of one lane."""
        return [frame for frame in self.frames if frame.get("stream_id") == stream_id]

    @property
    def status(self) -> int:
        """Of an upgrade that was refused."""
        return int(self.heard[0]["status"])

    @property
    def error(self) -> Json:
        """Of an upgrade that was refused."""
        error: Json = orjson.loads(self.heard[1]["body"])["error"]
        return error

    async def _send(self, message: Message) -> None:
        await self.reading.wait()
        if self._left:
            raise OSError("the client has left")
        self.heard.append(message)
        if message["type"] == "websocket.send":
            assert "\n" not in message["text"]
            frame = orjson.loads(message["text"])
            SDK.validate_python(frame)
            self.frames.append(frame)
        elif message["type"] == "websocket.close":
            self.code = message["code"]
            self._to_app.put_nowait({"type": "websocket.disconnect", "code": self.code})
        self._news.set()


def is_last(frame: Json) -> bool:
    """Whether nothing follows it of the same response."""
    return frame["type"] in (*TERMINAL, "error")


@asynccontextmanager
async def connected(
    app: ASGIApp, path: str = "/v1/responses", **headers: str
) -> AsyncIterator[Socket]:
    """A client that is gone at the end of the block."""
    socket = Socket(app, headers, path)
    try:
        yield socket
    finally:
        socket.leave()
        await socket.done()
