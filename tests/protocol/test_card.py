"""What an engine's card says: a note for users, the temperature where a request sets none, and
whether arguments of functions are guided."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import orjson

from tests.support.asgi import JSON, Client, living
from tests.support.cards import app_of_a_card
from tests.support.steering import GUIDES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    import pytest

    from tests.support.scripted.engine import ScriptedEngine

NOTE = "A toy."
CHAT = {"model": "mine", "messages": [{"role": "user", "content": "Hello"}]}
MESSAGES = {**CHAT, "max_tokens": 50}
FLAG = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
GET = {"type": "function", "name": "get", "parameters": FLAG}
CALLED = (
    "<|channel|>commentary to=functions.get <|constrain|>json<|message|>",
    '{"ok":true}<|endoftext|>',
)


def served_from(
    engines: Path,
    story: Callable[[Client, ScriptedEngine], Awaitable[None]],
    *written: str,
    **card: Any,
) -> None:
    """Run the story with a server of the one prepared engine, which has such a card."""
    app, engine = app_of_a_card(engines, *written, **card)

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


def test_a_card_may_guide_arguments_of_functions_that_are_not_strict(tmp_path: Path) -> None:
    async def story(client: Client, engine: ScriptedEngine) -> None:
        for strict in (True, False, None):
            reply = (await client.create(model="mine", tools=[GET | {"strict": strict}])).json()
            assert reply["output"][-1]["arguments"] == '{"ok":true}'
            assert reply["tools"][0]["strict"] is bool(strict)
            guide = engine.requests[-1].options.guide
            assert guide is not None
            assert "boolean" in guide.source

    served_from(tmp_path, story, *CALLED, guides=GUIDES, strict_tools=True)


def test_a_guide_of_the_cards_lets_no_argument_be_written_that_its_schema_does_not_list(
    tmp_path: Path,
) -> None:
    loose = GET | {"parameters": {"type": "object", "properties": FLAG["properties"]}}

    async def story(client: Client, engine: ScriptedEngine) -> None:
        reply = (await client.create(model="mine", tools=[loose])).json()
        assert reply["tools"][0]["parameters"] == loose["parameters"]
        guide = engine.requests[-1].options.guide
        assert guide is not None
        assert orjson.loads(guide.source)["additionalProperties"] is False

    served_from(tmp_path, story, *CALLED, guides=GUIDES, strict_tools=True)


def test_a_schema_that_no_guide_can_follow_is_served_without_one(tmp_path: Path) -> None:
    odd = GET | {"parameters": FLAG | {"not": {"required": ["x"]}}}

    async def story(client: Client, engine: ScriptedEngine) -> None:
        reply = await client.create(model="mine", tools=[odd])
        assert reply.json()["status"] == "completed"
        assert engine.requests[-1].options.guide is None

    served_from(tmp_path, story, guides=GUIDES, strict_tools=True)


def test_an_engine_without_guides_serves_functions_as_they_are(tmp_path: Path) -> None:
    async def story(client: Client, engine: ScriptedEngine) -> None:
        assert (await client.create(model="mine", tools=[GET])).status == 200

    served_from(tmp_path, story, strict_tools=True)
