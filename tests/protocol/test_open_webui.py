"""Requests in the shapes that Open WebUI's public sources give them (`tests/data/open_webui.json`,
written by hand and not recorded), answered as it reads them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.asgi import JSON
from tests.support.chat import PATH, chunks_of, folded
from tests.support.served import CALL, THOUGHT, served
from tests.support.story import story

Json = dict[str, Any]

SHAPES = Path(__file__).parents[1] / "data" / "open_webui.json"
HEADERS = JSON | {
    "authorization": "Bearer secret",
    "x-openwebui-user-name": "Ann%20Li",
    "x-openwebui-user-id": "5f0c",
    "x-openwebui-user-email": "ann@example.org",
    "x-openwebui-user-role": "user",
    "x-openwebui-chat-id": "3f2b",
}


@cache
def shapes() -> list[Json]:
    found: list[Json] = orjson.loads(SHAPES.read_bytes())
    return found


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape["name"])
@story
async def test_a_request_is_answered_as_open_webui_reads_it(shape: Json) -> None:
    async with served(CALL if "calls" in shape else THOUGHT, api_keys="ann:secret") as s:
        body = orjson.dumps(shape["body"]) if shape["body"] else b""
        path = shape.get("path", PATH)
        call = await s.client.send(shape.get("method", "POST"), path, body, HEADERS)
        if "refused" in shape:
            assert (call.status, call.error["param"]) == (400, shape["refused"])
            return
        assert call.status == 200, call.body
        if path == "/v1/models":
            assert [card["id"] for card in call.json()["data"]] == ["demo"]
            return
        for text in shape["shown"]:
            assert text in s.prompt_text()
        if path == "/v1/responses":
            assert call.events[-1]["type"] == "response.completed"
        elif shape["body"]["stream"]:
            judge(folded(chunks_of(call.body)), calls="calls" in shape)
        else:
            assert call.json()["choices"][0]["message"]["content"] == "Hello there, friend."


def judge(message: Json, *, calls: bool) -> None:
    """What a user sees: a thought by any of three names, and then a text or a call."""
    thought = message.get("reasoning_content") or message.get("reasoning")
    if calls:
        assert thought == "I need the weather."
        (call,) = message["tool_calls"]
        assert call["function"] == {"name": "weather", "arguments": '{"city": "Bern"}'}
    else:
        assert (thought, message["content"]) == ("They greet me.", "Hello there, friend.")
