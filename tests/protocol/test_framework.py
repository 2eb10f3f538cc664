"""What FastAPI does for us, and what it must not do. Budget: 2 s."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING

import orjson
import pytest
from fastapi import FastAPI

from tests.support.asgi import JSON, Client, asked, living, scope_of
from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import ANSWER, SETTINGS, script, served
from trt_responses.app import create_app
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from starlette.types import Message

    from trt_responses.engine import Health


def test_nothing_stands_between_a_stream_and_the_server_s_send() -> None:
    """A layer around `send` is a frame above it, and costs its time for each token."""

    async def story() -> None:
        callers: set[str] = set()

        async def send(message: Message) -> None:
            callers.add(sys._getframe(1).f_code.co_filename.partition("trt_responses/")[2])

        body = orjson.dumps(asked(stream=True))
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            return parts.pop() if parts else await asyncio.get_running_loop().create_future()

        app = create_app(Settings(**SETTINGS), engine=ScriptedEngine([script(ANSWER)]))
        async with living(app):
            await app(scope_of("POST", "/v1/responses", JSON), receive, send)
        assert callers == {"web/stream/sse.py", "web/stream/calls.py"}

    asyncio.run(story())


def test_an_app_can_be_mounted_in_another_one() -> None:
    async def story() -> None:
        ours = create_app(
            Settings(**SETTINGS, api_keys="ann:k"), engine=ScriptedEngine([script(ANSWER)])
        )
        outer = FastAPI(lifespan=lambda _: living(ours))
        outer.mount("/llm", ours)
        key = JSON | {"authorization": "Bearer k"}
        async with living(outer):
            client = Client(outer)
            made = await client.send("POST", "/llm/v1/responses", orjson.dumps(asked()), key)
            assert made.status == 200
            path = f"/llm/v1/responses/{made.json()['id']}"
            assert (await client.send("GET", path, headers=key)).status == 200
            assert (await client.send("GET", f"{path}/input_items", headers=key)).status == 200
            assert (await client.send("GET", f"{path}/input_items")).status == 401
            missing = await client.send("GET", "/llm/v1/nothing", headers=key)
            assert missing.error["code"] == "unknown_url"

    asyncio.run(story())


def test_a_route_that_breaks_is_told_in_the_api_s_shape_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(ScriptedEngine):
        fault: Exception | None = None

        def health(self) -> Health:
            if self.fault is not None:
                raise self.fault
            return super().health()

    async def story() -> None:
        engine = Broken([script(ANSWER)])
        app = create_app(Settings(**SETTINGS), engine=engine)
        async with living(app):
            engine.fault = ZeroDivisionError()
            for path in ("/health/live", "/v1/responses"):
                call = await Client(app).send(
                    "POST" if "v1" in path else "GET", path, orjson.dumps(asked()), JSON
                )
                assert (call.status, call.error["type"]) == (500, "server_error")
                assert "ZeroDivisionError" in call.error["message"]
                assert call.headers["x-request-id"].startswith("req_")

    with caplog.at_level(logging.ERROR):
        asyncio.run(story())
    assert caplog.text.count("ZeroDivisionError") == 2


@pytest.mark.parametrize(
    ("query", "param"),
    [
        *(
            ("limit=0", "limit"),
            ("limit=101", "limit"),
            ("limit=1_0", "limit"),
            ("limit=+1", "limit"),
        ),
        *(("limit=1.0", "limit"), ("limit=", "limit"), ("order=up", "order"), ("order=", "order")),
    ],
)
def test_a_parameter_that_is_wrong_is_a_400_that_names_it(query: str, param: str) -> None:
    async def story() -> None:
        async with served() as s:
            made = (await s.client.create()).json()["id"]
            call = await s.client.get(f"/v1/responses/{made}/input_items?{query}")
            assert (call.status, call.error["param"]) == (400, param)
            assert call.error["code"] == "invalid_value"
            assert call.error["message"].startswith(f"Invalid value for '{param}': it ")

    asyncio.run(story())


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_address_itself_answers_without_a_key(method: str) -> None:
    async def story() -> None:
        async with served(api_keys="ann:k") as s:
            call = await s.client.send(method, "/", headers={"host": "10.1.2.3"})
            assert call.status == 200
            assert call.json()["responses"] == "/v1/responses"

    asyncio.run(story())


def test_a_head_is_answered_as_the_get_that_it_stands_for() -> None:
    async def story() -> None:
        async with served() as s:
            for path, status in (
                *(("/v1/models", 200), ("/health/live", 200), ("/docs", 200)),
                *(("/v1/responses", 405), ("/v1/nothing", 404), ("/v1/responses/x", 404)),
            ):
                call = await s.client.send("HEAD", path)
                assert call.status == status, path
            assert "HEAD" in (await s.client.send("HEAD", "/v1/nothing")).error["message"]

    asyncio.run(story())
