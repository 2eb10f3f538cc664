"""Whoever embeds apps may have several, which share their routes and nothing else, and may close
them: nothing keeps a closed app, its engine or its store. Its lifespan is all that it needs."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from starlette.testclient import TestClient

from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import ANSWER, script, served
from trt_responses import Settings, create_app

APPS = 4


def test_no_closed_app_stays_alive() -> None:
    parts: list[weakref.ref[object]] = []

    async def story() -> None:
        async with served() as s:
            for path in ("/v1/models", "/health", "/v1/conversations/conv_1"):
                await s.client.get(path)
            made = await s.client.send("POST", "/v1/responses", b'{"model":"demo","input":"Hi"}')
            assert made.status == 200
            state = s.app.state
            held = (s.app, s.engine, s.runs, state.guard, state.server)
            parts.extend(map(weakref.ref, held))

    for _ in range(APPS):
        asyncio.run(story())
    gc.collect()
    alive = [type(part).__name__ for found in parts if (part := found()) is not None]
    assert alive == []


def test_apps_of_one_process_share_routes_and_nothing_else() -> None:
    def models(described: dict[str, Any]) -> list[str]:
        body = described["components"]["schemas"]["CreateResponse"]
        names: list[str] = body["properties"]["model"]["enum"]
        return names

    async def story() -> None:
        async with served(model="one") as first, served(model="two") as second:
            said = await first.client.create(model="one", input="Hi")
            here, there = [
                await s.client.get(f"/v1/responses/{said.json()['id']}") for s in (first, second)
            ]
            assert (here.status, there.status) == (200, 404)
            kept = await first.client.send("POST", "/v1/conversations", b"{}")
            path = f"/v1/conversations/{kept.json()['id']}"
            assert (await first.client.get(path)).status == 200
            assert (await second.client.get(path)).status == 404
            for s, name in ((first, "one"), (second, "two")):
                assert models((await s.client.get("/openapi.json")).json()) == [name]
                listed = (await s.client.get("/v1/models")).json()["data"]
                assert [each["id"] for each in listed] == [name]

    asyncio.run(story())


def test_starlettes_test_client_serves_it() -> None:
    app = create_app(
        Settings(store="memory", model="demo"), engine=ScriptedEngine([script(ANSWER)])
    )
    with TestClient(app, base_url="http://localhost") as client:
        told = client.post("/v1/responses", json={"model": "demo", "input": "Hi"})
    assert told.json()["output"][-1]["content"][0]["text"] == "Hello there, friend."
