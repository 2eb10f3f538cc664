"""The names by which the one model is asked for."""

from __future__ import annotations

import asyncio

from tests.support.served import served


def test_a_model_answers_to_its_aliases_and_says_its_own_name() -> None:
    async def story() -> None:
        async with served(model_aliases=("gpt-5", "openai/demo")) as s:
            for name in ("demo", "gpt-5", "openai/demo"):
                reply = await s.client.create(model=name)
                assert (reply.status, reply.json()["model"]) == (200, "demo")
                card = (await s.client.get(f"/v1/models/{name}")).json()
                assert (card["id"], card["root"]) == (name, "demo")
            listed = (await s.client.get("/v1/models")).json()["data"]
            assert [card["id"] for card in listed] == ["demo", "gpt-5", "openai/demo"]
            refused = await s.client.create(model="claude-opus-5")
            assert (refused.status, refused.error["code"]) == (404, "model_not_found")

    asyncio.run(story())


def test_a_model_answers_to_every_name_where_the_operator_says_so() -> None:
    async def story() -> None:
        async with served(any_model=True) as s:
            reply = await s.client.create(model="claude-haiku-5")
            assert (reply.status, reply.json()["model"]) == (200, "demo")
            assert len((await s.client.get("/v1/models")).json()["data"]) == 1

    asyncio.run(story())
