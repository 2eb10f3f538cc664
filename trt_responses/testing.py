"""A pytest fixture: a server of a test's own, whose model says what the test wrote.

def test_agent(responses_server):
    responses_server.script({"say": "Hello"})
    client = OpenAI(base_url=responses_server.base_url, api_key="-")
    assert client.responses.create(model="any", input="Hi").output_text == "Hello"
    assert responses_server.requests[0].body["input"] == "Hi"
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from trt_responses.features.script.rules import Script


@dataclass(frozen=True)
class Sent:
    """A request as the client sent it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    """The JSON; None for none, bytes for what is not JSON."""


@dataclass
class ResponsesServer:
    """A server, and what a test sees of it."""

    base_url: str
    requests: list[Sent]
    _script: Script = field(repr=False)

    def script(self, *rules: Mapping[str, Any], seed: int = 0) -> None:
        """Play these rules from now on; their keys are those of a script file."""
        from trt_responses.features.script.rules import script_of

        new = script_of(list(rules), "given to `script`", seed)
        new.by_header = True
        vars(self._script).update(vars(new))


@pytest.fixture
def responses_server() -> Iterator[ResponsesServer]:
    """A server on a free port of the loopback, which plays `auto` until the test gives rules."""
    listening = socket.create_server(("127.0.0.1", 0))
    server, requests, script = _server()
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    host, port = listening.getsockname()
    try:
        yield ResponsesServer(f"http://{host}:{port}/v1", requests, script)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def _server() -> tuple[uvicorn.Server, list[Sent], Script]:
    import uvicorn

    from trt_responses.app import create_app
    from trt_responses.features.script.engine import ScriptEngine
    from trt_responses.settings import Settings

    settings = Settings(
        engine="script://auto#faults",
        store="memory://",
        model="script",
        model_aliases=("*",),
        max_calls=16,
        playground=False,
    )
    app = create_app(settings)
    engine = app.state.server.of(ScriptEngine)
    requests: list[Sent] = []
    noted = _Noted(app, requests)
    config = uvicorn.Config(noted, log_level="error", access_log=False, lifespan="on")
    return uvicorn.Server(config), requests, engine.script


class _Noted:
    """An ASGI layer that keeps what clients send."""

    def __init__(self, app: ASGIApp, requests: list[Sent]) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        first: list[Message] = []
        while not first or first[-1].get("more_body"):
            first.append(await receive())
        body = b"".join(message.get("body", b"") for message in first)
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        self._requests.append(Sent(scope["method"], scope["path"], headers, _read(body)))
        ahead = iter(first)

        async def again() -> Message:
            return next(ahead, None) or await receive()

        await self._app(scope, again, send)


def _read(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return body
