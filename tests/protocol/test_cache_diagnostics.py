"""`prompt_cache_diagnostics`: whether a prompt goes on from an earlier one, and if not, why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from openai.types.responses import Response

from tests.support.served import ANSWER, WEATHER, served
from tests.support.steering import GUIDES
from tests.support.story import story

if TYPE_CHECKING:
    from tests.support.served import Served

LONG = "I live in Bern, and ask about the weather there each morning. " * 10


async def diagnosed(s: Served, compared: str, **fields: Any) -> dict[str, Any]:
    options = {"comparison_response_id": compared}
    call = await s.client.create(prompt_cache_options=options, **fields)
    assert call.status == 200, call.body
    assert "x-trt-ignored" not in call.headers
    made = call.json()
    Response.model_validate(made)
    found: dict[str, Any] = made["prompt_cache_diagnostics"]
    stored = (await s.client.get(f"/v1/responses/{made['id']}")).json()
    assert stored["prompt_cache_diagnostics"] == found
    if found["type"] == "cache_miss":
        tokens = made["usage"]["input_tokens"]
        assert found.pop("cache_missed_tokens") == tokens - found["comparison_reusable_tokens"]
    return found


@story
async def test_a_turn_that_continues_a_response_is_a_hit() -> None:
    async with served() as s:
        first = (await s.client.create(input=LONG)).json()
        assert "prompt_cache_diagnostics" not in first
        found = await diagnosed(s, first["id"], previous_response_id=first["id"])
        assert found == {"type": "cache_hit"}
        found = await diagnosed(s, first["id"], input=LONG, include=["metrics"])
        assert found == {"type": "cache_hit"}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"input": LONG.replace("Bern", "Rome")}, "input_changed"),
        ({"instructions": "Be short."}, "input_changed"),
        ({"tools": [WEATHER]}, "tools_changed"),
        ({"reasoning": {"effort": "high"}}, "reasoning_effort_changed"),
        ({"text": {"format": {"type": "json_object"}}}, "text_format_changed"),
    ],
)
def test_a_miss_says_what_changed_and_where_the_first_token_differs(
    changed: dict[str, Any], reason: str
) -> None:
    @story
    async def told() -> None:
        second = "{}<|return|>" if "text" in changed else ANSWER
        async with served(ANSWER, second, guides=GUIDES) as s:
            first = (await s.client.create(input=LONG)).json()
            before = s.prompt()
            found = await diagnosed(s, first["id"], **({"input": LONG} | changed))
            now = s.prompt()
            pairs = enumerate(zip(before, now, strict=False))
            place = next(number for number, (one, two) in pairs if one != two)
            assert found == {
                "type": "cache_miss",
                "reason": reason,
                "comparison_reusable_tokens": place,
            }

    told()


@story
async def test_what_cannot_be_compared_is_named() -> None:
    async with served(adapters=("pirate",)) as s:
        first = (await s.client.create(input=LONG)).json()
        other = await diagnosed(s, first["id"], input=LONG, model="demo:pirate")
        assert (other["reason"], other["comparison_reusable_tokens"]) == ("model_changed", 0)
        assert await diagnosed(s, "resp_unknown") == {"type": "comparison_response_not_found"}
    async with served(explain="off") as s:
        first = (await s.client.create(input=LONG)).json()
        assert await diagnosed(s, first["id"]) == {"type": "unavailable"}
