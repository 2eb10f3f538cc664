"""What an engine's card says: a note for users, and the temperature where a request sets none."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import orjson

from tests.support.asgi import JSON, Client, living
from tests.support.cards import app_of_a_card

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    import pytest

    from tests.support.scripted.engine import ScriptedEngine

NOTE = "A toy."
CHAT = {"model": "mine", "messages": [{"role": "user", "content": "Hello"}]}
MESSAGES = {**CHAT, "max_tokens": 50}


def served_from(
    engines: Path, story: Callable[[Client, ScriptedEngine], Awaitable[None]], **card: Any
) -> None:
    """Run the story with a server of the one prepared engine, which has such a card."""
    app, engine = app_of_a_card(engines, **card)

    async def whole() -> None:
        async with living(app):
            await story(Client(app), engine)

    asyncio.run(whole())


def test_a_note_is_in_the_log_and_at_each_name_of_the_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(client: Client, engine: ScriptedEngine) -> None:
        listed = (await client.get("/v1/models")).json()["data"]
        assert {card["id"]: card["description"] for card in listed}["mine"] == NOTE
        assert (await client.get("/v1/models/mine")).json()["description"] == NOTE

    with caplog.at_level(logging.INFO):
        served_from(tmp_path, story, note=NOTE)
    assert len([line for line in caplog.messages if NOTE in line]) == 1


def test_the_cards_temperature_counts_where_a_request_sets_none(tmp_path: Path) -> None:
    async def story(client: Client, engine: ScriptedEngine) -> None:
        for sent, drawn in (({}, 0.0), ({"temperature": 1}, 1.0), ({"temperature": 0.5}, 0.5)):
            reply = await client.create(model="mine", **sent)
            assert reply.json()["temperature"] == drawn
            paths = (("/v1/chat/completions", CHAT), ("/v1/messages", MESSAGES))
            for path, body in paths:
                reply = await client.send("POST", path, orjson.dumps(body | sent), headers=JSON)
                assert reply.status == 200
            assert {engine.requests[-n].options.temperature for n in (1, 2, 3)} == {drawn}

    served_from(tmp_path, story, temperature=0.0)


def test_a_card_without_either_changes_nothing(tmp_path: Path) -> None:
    async def story(client: Client, engine: ScriptedEngine) -> None:
        assert "description" not in (await client.get("/v1/models/mine")).json()
        assert (await client.create(model="mine")).json()["temperature"] == 1.0

    served_from(tmp_path, story)
