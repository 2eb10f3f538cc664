"""Tools and settings that come as items of the input, and count as the request's own fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.served import CALL, WEATHER, served
from tests.support.steering import GUIDES
from tests.support.story import story

if TYPE_CHECKING:
    from tests.support.asgi import Json

USER: Json = {"role": "user", "content": "Go"}
OTHER: Json = {"type": "function", "name": "other", "parameters": {"type": "object"}}
FORM: Json = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}


def tools(*brought: Json) -> Json:
    return {"type": "additional_tools", "role": "developer", "tools": list(brought)}


def update(**settings: Json) -> Json:
    return {"type": "configuration_update"} | settings


@story
async def test_a_tool_that_an_item_brings_is_called_as_any_other() -> None:
    async with served(CALL) as app:
        made = (await app.client.create(input=[tools(WEATHER), USER], tools=[OTHER])).json()
        assert made["output"][-1]["name"] == "weather"
        assert [tool["name"] for tool in made["tools"]] == ["other"]
        prompt = app.prompt_text()
        assert prompt.index("type other") < prompt.index("type weather")
        alone = (await app.client.create(input=[USER, tools(WEATHER)])).json()
        assert alone["output"][-1]["name"] == "weather"
        listed = await app.client.get(f"/v1/responses/{alone['id']}/input_items")
        kinds = {item["type"] for item in listed.json()["data"]}
        assert kinds == {"message", "additional_tools"}


@story
async def test_the_last_update_counts() -> None:
    async with served("{}<|return|>", guides=GUIDES) as app:
        low, high = update(reasoning={"effort": "low"}), update(reasoning={"effort": "high"})
        made = await app.client.create(
            input=[low, USER, high], reasoning={"effort": "medium", "summary": "auto"}
        )
        assert made.json()["reasoning"] == {"effort": "high", "summary": "auto"}
        assert "Reasoning: high" in app.prompt_text()
        effort = {"effort": "none"}
        made = await app.client.create(
            input=[update(text={"format": FORM}, reasoning=effort), USER]
        )
        assert made.json()["text"]["format"]["type"] == "json_schema"
        assert "# Response Formats" in app.prompt_text()


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "additional_tools", "role": "user", "tools": []}, "input[0].role"),
        ({"type": "additional_tools", "role": "developer"}, "input[0].tools"),
        (tools({"type": "function", "name": "weather"}), "input[0].tools[0].name"),
        (tools({"type": "function"}), "input[0].tools[0].name"),
        (update(reasoning={"effort": "huge"}), "input[0].reasoning.effort"),
        (update(text={"format": {"type": "xml"}}), "input[0].text.format"),
        (update(text={}), "input[0].text.format"),
    ],
)
@story
async def test_a_fault_is_named_where_it_stands(item: Json, param: str) -> None:
    async with served() as app:
        reply = await app.client.create(input=[item, USER], tools=[WEATHER])
        assert (reply.status, reply.error["param"]) == (400, param)
        assert not app.engine.requests
