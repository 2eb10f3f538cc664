"""Headers for a fleet's gateway: the same for all turns of a conversation, others for another."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from tests.support.asgi import JSON, asked
from tests.support.served import served
from trt_responses.errors import UsageError
from trt_responses.settings import Settings

GIVEN = (
    "X-Session-Id={session},x-llm-d-inference-fairness-id={owner},"
    "x-llm-d-inference-objective=interactive"
)
KEYS = "ann:one,ben:two"


def test_all_turns_of_a_conversation_have_one_session_and_another_owner_another() -> None:
    async def story() -> None:
        async with served(engine_headers=GIVEN, api_keys=KEYS) as s:

            async def sent(key: str, **fields: object) -> tuple[str, dict[str, str]]:
                headers = JSON | {"authorization": f"Bearer {key}"}
                body = orjson.dumps(asked(**fields))
                reply = await s.client.send("POST", "/v1/responses", body, headers)
                assert reply.status == 200, reply.body
                return reply.json()["id"], dict(s.last.options.trace_headers)

            first, began = await sent("one", input="Hello")
            _, more = await sent("one", input="More", previous_response_id=first)
            _, other = await sent("one", input="Good evening")
            _, foreign = await sent("two", input="Hello")
            assert began == more
            assert began["x-llm-d-inference-objective"] == "interactive"
            sessions = {each["x-session-id"] for each in (began, other, foreign)}
            assert len(sessions) == 3
            assert [len(session) for session in sessions] == [32] * 3
            owners = [each["x-llm-d-inference-fairness-id"] for each in (began, other, foreign)]
            assert owners[0] == owners[1] != owners[2]
            assert "ann" not in "".join(owners)

            named = {"prompt_cache_key": "mine"}
            _, keyed = await sent("one", input="One", **named)
            _, again = await sent("one", input="Two", **named)
            assert keyed["x-session-id"] == again["x-session-id"]

    asyncio.run(story())


def test_without_owners_their_header_is_left_out() -> None:
    async def story() -> None:
        async with served(engine_headers=GIVEN) as s:
            assert (await s.client.create(input="Hello")).status == 200
            headers = s.last.options.trace_headers
            assert sorted(headers) == ["x-llm-d-inference-objective", "x-session-id"]

    asyncio.run(story())


@pytest.mark.parametrize(
    "given", ["x", "x=", "x y=1", "x={model}", "x={session", "x=a\r\nb: c", "Host=a"]
)
def test_a_header_that_cannot_be_sent_stops_the_start(given: str) -> None:
    with pytest.raises(UsageError, match="ENGINE_HEADERS"):
        Settings.from_environment({"TRT_RESPONSES_ENGINE_HEADERS": given})
