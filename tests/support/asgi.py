"""An ASGI client in memory: no socket, and every message with the engine's step at which it came.

Behaves as uvicorn does where an app can tell: `receive` gives the body, then nothing until the
client hangs up or the reply is over; after a hang-up `send` takes everything and keeps nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_to_bytes

import orjson

from tests.support.turns import turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from starlette.types import ASGIApp, Message, Scope

Json = dict[str, Any]

JSON = {"host": "127.0.0.1:8000", "content-type": "application/json"}
PATIENCE_S = 300
"""Longer than any wait in a test takes: one that reaches it has found a fault."""


async def until(claim: Callable[[], bool]) -> None:
    """Wait turn after turn until the claim holds. It raises when that takes too long, so that a
    test may end with it."""
    async with asyncio.timeout(PATIENCE_S):
        while not claim():
            await turn()


class Heard(NamedTuple):
    """A message of the app, and how many steps the engine had made by then."""

    step: int
    message: Message


@asynccontextmanager
async def living(app: ASGIApp) -> AsyncIterator[None]:
    """The app between its startup and its shutdown."""
    phases: asyncio.Queue[Message] = asyncio.Queue()
    sent: asyncio.Queue[Message] = asyncio.Queue()
    scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    life = asyncio.ensure_future(app(scope, phases.get, sent.put))
    await _pass(life, phases, sent, "startup")
    try:
        yield
    finally:
        await _pass(life, phases, sent, "shutdown")
        await life


async def _pass(
    life: asyncio.Future[None],
    phases: asyncio.Queue[Message],
    sent: asyncio.Queue[Message],
    phase: str,
) -> None:
    await phases.put({"type": f"lifespan.{phase}"})
    answer = asyncio.ensure_future(sent.get())
    await asyncio.wait((life, answer), return_when=asyncio.FIRST_COMPLETED)
    if not answer.done():
        answer.cancel()
        await life
    assert answer.result()["type"] == f"lifespan.{phase}.complete", answer.result()


class Call:
    """One request and what has come back so far."""

    def __init__(self, app: ASGIApp, scope: Scope, body: Sequence[bytes], step: Callable[[], int]):
        self.heard: list[Heard] = []
        self.reading = asyncio.Event()
        """While it is not set, the client takes nothing and `send` waits, as a full socket does."""
        self.reading.set()
        self._body = [*body]
        self._begun = self._cut = False
        self._step = step
        self._left = asyncio.Event()
        self._news = asyncio.Event()
        self._over = asyncio.Event()
        self._task = asyncio.ensure_future(app(scope, self._receive, self._send))
        self._task.add_done_callback(lambda _: self._news.set())

    def hang_up(self) -> None:
        self._left.set()
        self.reading.set()

    def cut_body(self) -> None:
        """Send the first part of the body and never the rest."""
        self._cut = True

    async def done(self) -> Call:
        """Until the app has returned; what it raised is raised here."""
        await self._task
        return self

    async def until(self, claim: Callable[[Call], bool]) -> Call:
        """Until the claim holds; fails when the reply is over and it does not."""
        while not claim(self):
            assert not self._task.done(), f"the reply is over: {self.body[-500:]!r}"
            self._news.clear()
            await self._news.wait()
        return self

    async def _receive(self) -> Message:
        if self._body and not (self._cut and self._begun):
            self._begun = True
            part = self._body.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._body)}
        ends = [asyncio.ensure_future(e.wait()) for e in (self._left, self._over)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.reading.wait()
        if self._left.is_set():
            return
        self.heard.append(Heard(self._step(), message))
        self._news.set()
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._over.set()

    # --- what came back -----------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self._task.done()

    @property
    def status(self) -> int:
        status: int = self.heard[0].message["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        raw = self.heard[0].message["headers"]
        return {name.decode().lower(): value.decode("latin-1") for name, value in raw}

    @property
    def body(self) -> bytes:
        return b"".join(heard.message.get("body", b"") for heard in self.heard[1:])

    def json(self) -> Json:
        parsed: Json = orjson.loads(self.body)
        return parsed

    @property
    def error(self) -> Json:
        error: Json = self.json()["error"]
        return error

    @property
    def events(self) -> list[Json]:
        """The events of a stream so far; the name of each is its type."""
        return events_of(self.body)


def events_of(body: bytes) -> list[Json]:
    """The events in frames as a client reads them; `[DONE]` is no event, and nothing follows it."""
    *frames, rest = body.split(b"\n\n")
    assert rest == b"", "a frame was cut"
    frames = [frame for frame in frames if not frame.startswith(b":")]  # comments
    frames = [frame for frame in frames if not frame.startswith(b":")]  # comments
    if b"data: [DONE]" in frames:
        assert frames.index(b"data: [DONE]") == len(frames) - 1
        frames.pop()
    events = []
    for frame in frames:
        name, data = frame.split(b"\n")
        event = orjson.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        events.append(event)
    return events


class Client:
    """Calls an app that lives. `step` is a clock to mark messages with."""

    def __init__(self, app: ASGIApp, step: Callable[[], int] = lambda: 0) -> None:
        self.app = app
        self._step = step

    def open(
        self,
        method: str,
        path: str,
        body: bytes | Sequence[bytes] = b"",
        headers: Mapping[str, str | bytes] = JSON,
    ) -> Call:
        """Begin a request; a sequence is a body that comes in parts, without a length."""
        whole = isinstance(body, bytes)
        parts = [body] if isinstance(body, bytes) else [*body]
        sent = dict(headers)
        if whole and body:
            sent.setdefault("content-length", str(len(body)))
        return Call(self.app, scope_of(method, path, sent), parts, self._step)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | Sequence[bytes] = b"",
        headers: Mapping[str, str | bytes] = JSON,
    ) -> Call:
        return await self.open(method, path, body, headers).done()

    def ask(self, **fields: object) -> Call:
        """Begin a response; the model is the one that tests serve."""
        return self.open("POST", "/v1/responses", orjson.dumps(asked(**fields)))

    async def create(self, **fields: object) -> Call:
        return await self.ask(**fields).done()

    async def get(self, path: str) -> Call:
        return await self.send("GET", path)


def asked(**fields: object) -> Json:
    return {"model": "demo", "input": "Hello"} | fields


def scope_of(method: str, target: str, headers: Mapping[str, str | bytes]) -> Scope:
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50000),
        "scheme": "http",
        "method": method,
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode("latin-1"), _raw(value)) for name, value in headers.items()],
        "state": {},
    }


def _raw(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")
