"""Pages of other origins, with the requests that a browser sends for them. Budget: 3 s."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.support.asgi import asked
from tests.support.served import ANSWER, served

if TYPE_CHECKING:
    from tests.support.asgi import Call
    from tests.support.served import Served

PAGE = "https://app.example"
BROWSER = {
    "host": "127.0.0.1:8000",
    "connection": "keep-alive",
    "user-agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/156.0.0.0",
    "accept": "*/*",
    "origin": PAGE,
    "sec-fetch-site": "cross-site",
    "sec-fetch-mode": "cors",
    "sec-fetch-dest": "empty",
    "referer": f"{PAGE}/",
}
"""What Chromium sends with each request of `fetch`."""

WANTED = "authorization,content-type,idempotency-key,x-stainless-lang,x-stainless-retry-count"
"""What the JavaScript SDK adds, as a browser lists it: sorted, in small letters."""


def preflight(s: Served, method: str, path: str, headers: str = WANTED, **more: str) -> Call:
    asks = {"access-control-request-method": method, "access-control-request-headers": headers}
    if not headers:
        del asks["access-control-request-headers"]
    return s.client.open("OPTIONS", path, b"", BROWSER | asks | more)


def fetch(s: Served, method: str, path: str, body: object = None, **more: str) -> Call:
    data = b"" if body is None else orjson.dumps(body)
    headers = BROWSER | ({"content-type": "application/json"} if data else {}) | more
    return s.client.open(method, path, data, headers)


def check_shown(call: Call, origin: str = PAGE) -> None:
    """A browser hands the reply to the page, with our headers."""
    assert call.headers["access-control-allow-origin"] == origin
    assert "origin" in call.headers["vary"].lower()
    exposed = call.headers["access-control-expose-headers"].split(", ")
    ours = {name for name in call.headers if name.startswith(("x-", "openai-", "retry-"))}
    assert ours - {"x-accel-buffering"} <= set(exposed)
    assert [name for name, _ in call.heard[0].message["headers"]].count(
        b"access-control-allow-origin"
    ) == 1


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", "/v1/responses"), ("GET", "/v1/responses/resp_1"), ("GET", "/v1/models")),
        *(("DELETE", "/v1/responses/resp_1"), ("POST", "/v1/responses/resp_1/cancel")),
    ],
)
def test_a_browser_that_asks_for_a_page_of_an_allowed_origin_may_send(
    method: str, path: str
) -> None:
    async def story() -> None:
        async with served(allowed_origins=PAGE, api_keys="ann:k") as s:
            call = await preflight(s, method, path).done()
            assert (call.status, call.body) == (204, b"")
            assert call.headers["access-control-allow-origin"] == PAGE
            assert method in call.headers["access-control-allow-methods"].split(", ")
            assert call.headers["access-control-allow-headers"] == WANTED
            assert int(call.headers["access-control-max-age"]) > 0
            simple = await preflight(s, method, path, headers="").done()
            assert simple.status == 204
            assert "access-control-allow-headers" not in simple.headers
            private = {"access-control-request-private-network": "true"}
            near = await preflight(s, method, path, **private).done()
            assert near.headers["access-control-allow-private-network"] == "true"

    asyncio.run(story())


@pytest.mark.parametrize("allowed", ["", "https://other.example", "http://app.example"])
def test_a_page_of_another_origin_may_not(allowed: str) -> None:
    async def story() -> None:
        async with served(allowed_origins=allowed) as s:
            for call in (
                preflight(s, "POST", "/v1/responses"),
                fetch(s, "POST", "/v1/responses", asked()),
                fetch(s, "GET", "/v1/models"),
            ):
                await call.done()
                assert (call.status, call.error["code"]) == (403, "origin_not_allowed")
                assert not [name for name in call.headers if name.startswith("access-control")]
            assert not s.engine.requests

    asyncio.run(story())


@pytest.mark.parametrize("allowed", [PAGE, f"https://other.example,{PAGE}", "*"])
def test_a_page_of_an_allowed_origin_uses_the_whole_api(allowed: str) -> None:
    async def story() -> None:
        async with served(ANSWER, allowed_origins=allowed, api_keys="ann:k") as s:
            key = {"authorization": "Bearer k"}
            made = await fetch(s, "POST", "/v1/responses", asked(zzz=1), **key).done()
            stream = await fetch(s, "POST", "/v1/responses", asked(stream=True), **key).done()
            path = f"/v1/responses/{made.json()['id']}"
            calls = [
                (made, 200),
                (stream, 200),
                (await fetch(s, "POST", "/v1/responses/input_tokens", asked(), **key).done(), 200),
                (await fetch(s, "GET", path, **key).done(), 200),
                (await fetch(s, "GET", f"{path}/input_items", **key).done(), 200),
                (await fetch(s, "POST", f"{path}/cancel", **key).done(), 400),
                (await fetch(s, "DELETE", path, **key).done(), 200),
                (await fetch(s, "GET", path, **key).done(), 404),
                (await fetch(s, "GET", "/v1/models", **key).done(), 200),
                (await fetch(s, "GET", "/v1/fields", **key).done(), 200),
                (await fetch(s, "GET", "/v1/models").done(), 401),
                (await fetch(s, "GET", "/v1/nothing", **key).done(), 404),
                (await fetch(s, "GET", "/v1/responses", **key).done(), 405),
                (await fetch(s, "POST", "/v1/responses", [], **key).done(), 400),
                (await fetch(s, "GET", "/health/ready").done(), 200),
                (await fetch(s, "GET", "/openapi.json").done(), 200),
                (await fetch(s, "GET", "/docs").done(), 200),
            ]
            s.drain()
            calls.append((await fetch(s, "POST", "/v1/responses", asked(), **key).done(), 503))
            for call, status in calls:
                assert call.status == status, call.body
                check_shown(call)
            assert made.headers["x-trt-ignored"] == "zzz"
            assert stream.events[-1]["type"] == "response.completed"

    asyncio.run(story())


def test_without_an_origin_nothing_is_said_of_one_but_that_it_counts() -> None:
    async def story() -> None:
        async with served(allowed_origins=PAGE) as s:
            call = await s.client.get("/v1/models")
            assert call.headers["vary"] == "Origin"
            assert "access-control-allow-origin" not in call.headers
        async with served() as s:
            assert "vary" not in (await s.client.get("/v1/models")).headers

    asyncio.run(story())


def test_an_options_request_that_is_no_preflight_is_a_method_that_is_not_there() -> None:
    async def story() -> None:
        async with served(allowed_origins=PAGE) as s:
            call = await s.client.send("OPTIONS", "/v1/responses", b"", BROWSER)
            assert call.status == 405
            check_shown(call)

    asyncio.run(story())
