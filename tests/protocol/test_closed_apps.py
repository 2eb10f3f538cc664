"""Whoever embeds the app may close it: nothing keeps a closed app, its engine or its store."""

from __future__ import annotations

import asyncio
import gc
import weakref

from tests.support.served import served

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
            held = (s.app, s.engine, s.runs, state.guard, state.metrics, state.exchange)
            parts.extend(map(weakref.ref, held))

    for _ in range(APPS):
        asyncio.run(story())
    gc.collect()
    alive = [type(part).__name__ for found in parts if (part := found()) is not None]
    assert alive == []
