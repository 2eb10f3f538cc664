"""Whoever embeds the app may close it: nothing keeps a closed app, its engine or its store. Its
lifespan is all that it needs."""

from __future__ import annotations

import asyncio
import gc
import weakref

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


def test_starlettes_test_client_serves_it() -> None:
    app = create_app(
        Settings(store="memory", model="demo"), engine=ScriptedEngine([script(ANSWER)])
    )
    with TestClient(app, base_url="http://localhost") as client:
        told = client.post("/v1/responses", json={"model": "demo", "input": "Hi"})
    assert told.json()["output"][-1]["content"][0]["text"] == "Hello there, friend."
