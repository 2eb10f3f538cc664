"""Calls an ASGI app in this process, without any server: the transport is a counter.

`receive` behaves as uvicorn's: the body, then nothing until the response is over.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trt_responses.serve.server import freeze_heap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import ASGIApp, Message, Scope

    OnBody = Callable[[bytes], object]


@asynccontextmanager
async def living(app: ASGIApp) -> AsyncIterator[None]:
    """The app between its startup and its shutdown."""
    phases: asyncio.Queue[Message] = asyncio.Queue()
    sent: asyncio.Queue[Message] = asyncio.Queue()
    scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}

    async def pass_through(phase: str) -> None:
        await phases.put({"type": f"lifespan.{phase}"})
        answer = await sent.get()
        if answer["type"] != f"lifespan.{phase}.complete":
            raise RuntimeError(f"the app's {phase} failed: {answer}")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(app(scope, phases.get, sent.put))  # type: ignore[arg-type]
        await pass_through("startup")
        freeze_heap()  # as a server does when it has started
        try:
            yield
        finally:
            gc.unfreeze()
        await pass_through("shutdown")


RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"


async def post(app: ASGIApp, body: bytes, on_body: OnBody, path: str = RESPONSES) -> int:
    """One response to its end; each body part goes to `on_body`. Returns the status."""
    return await _call(app, "POST", path, body, on_body)


async def scrape(app: ASGIApp) -> bytes:
    """The metrics, as a Prometheus gets them."""
    parts: list[bytes] = []
    status = await _call(app, "GET", "/metrics", b"", parts.append)
    if status != 200:
        raise RuntimeError(f"status {status}: {b''.join(parts)[:300]!r}")
    return b"".join(parts)


async def _call(app: ASGIApp, method: str, path: str, body: bytes, on_body: OnBody) -> int:
    over = asyncio.Event()
    requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    status = 0

    async def receive() -> Message:
        if requests:
            return requests.pop()
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status
        if "body" in message:
            on_body(message["body"])
        else:
            status = message["status"]

    await app(_scope(method, path, body), receive, send)
    over.set()
    return status


async def stream_of(app: ASGIApp, body: bytes, path: str = RESPONSES) -> bytes:
    """The whole of a reply's body."""
    parts: list[bytes] = []
    status = await post(app, body, parts.append, path)
    if status != 200:
        raise RuntimeError(f"status {status}: {b''.join(parts)[:300]!r}")
    return b"".join(parts)


def _scope(method: str, path: str, body: bytes) -> Scope:
    headers = {
        "host": "127.0.0.1:8000",
        "accept": "*/*",
        "user-agent": "bench",
        "content-type": "application/json",
        "content-length": str(len(body)),
    }
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50000),
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "state": {},
    }
