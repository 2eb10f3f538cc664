"""A server that replays a cassette, in memory: order, broken replies, hosts, errors of each API;
and one that records an upstream which does not answer."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

from tests.support.asgi import JSON, Client, living
from trt_responses import Settings, create_app
from trt_responses.features.cassette.exchanges import Exchange, Reply, Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

HELLO = {"model": "m", "input": "Hello"}


@asynccontextmanager
async def server(engine: str) -> AsyncIterator[Client]:
    app = create_app(Settings(engine=engine, model="demo", store="memory://"))
    async with living(app):
        yield Client(app)


async def post(
    client: Client, path: str = "/v1/responses", body: Any = HELLO, **headers: str
) -> Any:
    return await client.send("POST", path, json.dumps(body).encode(), JSON | headers)


def kept(path: Path, *replies: Reply, body: Any = HELLO) -> str:
    lines = [Exchange(Request("POST", "/v1/responses", body), each).line() for each in replies]
    path.write_text("".join(lines))
    return f"replay://{path}"


def reply(text: str, *, ended: bool = True) -> Reply:
    return Reply(200, {"content-type": "text/plain"}, [(0.0, text)], ended)


def test_equal_requests_get_the_replies_in_their_order_and_then_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with server(kept(tmp_path / "c", reply("1"), reply("2"))) as client:
            said = [(await post(client)).body for _ in range(3)]
            other = {**HELLO, "metadata": {"run": "7"}, "prompt_cache_key": "x"}
            said.append((await post(client, body=other)).body)
        assert said == [b"1", b"2", b"1", b"2"]

    asyncio.run(story())


def test_a_reply_that_broke_breaks_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with server(kept(tmp_path / "c", reply("half", ended=False))) as client:
            call = await post(client)
            assert call.body == b"half"
            assert call.heard[-1].message["more_body"]

    asyncio.run(story())


def test_a_departure_has_the_errors_shape_of_its_api(tmp_path: Path) -> None:
    async def story() -> None:
        async with server(kept(tmp_path / "c", reply("1"))) as client:
            departs = await post(client, body={"model": "m", "input": [{"content": "Hi"}]})
            assert (departs.status, departs.error["code"]) == (400, "departs")
            assert 'exchange 1: `input` differs: recorded "Hello"' in departs.error["message"]
            departs = await post(client, "/v1/messages")
            assert departs.json()["type"] == "error"
            assert departs.json()["error"]["type"] == "invalid_request_error"

    asyncio.run(story())


def test_a_body_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with server(kept(tmp_path / "c", reply("1"))) as client:
            for depth in (450, 100_000):
                body = b'{"input": %b%b}' % (b"[" * depth, b"]" * depth)
                refused = await client.send("POST", "/v1/responses", body, JSON)
                assert (refused.status, refused.error["type"]) == (400, "invalid_request_error")

    asyncio.run(story())


def test_a_reply_that_cannot_be_kept_is_passed_on_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Upstream(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"answer")

        def log_message(self, *_: object) -> None:
            pass

    async def story(port: int) -> None:
        async with server(f"record://{tmp_path / 'c'}#http://127.0.0.1:{port}/v1") as client:
            (tmp_path / "c").unlink()
            (tmp_path / "c").mkdir()
            assert (await post(client)).body == b"answer"

    with HTTPServer(("127.0.0.1", 0), Upstream) as upstream:
        Thread(target=upstream.serve_forever).start()
        try:
            asyncio.run(story(upstream.server_port))
        finally:
            upstream.shutdown()
    assert f"Is a directory: '{tmp_path / 'c'}'" in caplog.text


def test_a_foreign_host_is_refused_and_health_is_the_servers_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with server(kept(tmp_path / "c", reply("1"))) as client:
            assert (await post(client, host="evil.example")).status == 403
            assert (await client.get("/health")).status == 200

    asyncio.run(story())


def test_an_upstream_that_does_not_answer_is_a_502_and_nothing_is_kept(tmp_path: Path) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and does not listen
        port = deaf.getsockname()[1]

        async def story() -> None:
            engine = f"record://{tmp_path / 'c'}#http://127.0.0.1:{port}/v1"
            async with server(engine) as client:
                failed = await post(client)
            assert (failed.status, failed.error["type"]) == (502, "server_error")
            assert f"127.0.0.1:{port} does not answer" in failed.error["message"]

        asyncio.run(story())
    assert (tmp_path / "c").read_bytes() == b""
