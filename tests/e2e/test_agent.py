"""A coding agent's session over HTTP: the real SDK parses its streams and replays what it got.

Budget: 6 s.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from openai import AsyncOpenAI

from tests.support.agent import FIRST, LAST, PATCH, SECOND, START, THIRD, body
from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import SETTINGS, script
from tests.support.serving import serving
from trt_responses.app import create_app
from trt_responses.settings import Settings

EXTRA = {"session-id": "0199-a", "thread-id": "0199-b"}


async def asked(client: AsyncOpenAI, items: list[Any]) -> Any:
    """The last snapshot, as the SDK's stream gathers it."""
    sent = {k: v for k, v in body(items).items() if k not in ("client_metadata", "stream")}
    async with client.responses.stream(
        **sent, extra_headers=EXTRA, extra_body={"client_metadata": {"installation": "x"}}
    ) as stream:
        kinds = [event.type async for event in stream]
        assert kinds[-1] == "response.completed"
        return await stream.get_final_response()


def test_the_sdk_gets_an_agent_through_three_tools() -> None:
    async def story() -> None:
        engine = ScriptedEngine([script(text) for text in (FIRST, SECOND, THIRD, LAST)])
        app = create_app(Settings(**SETTINGS), engine=engine)
        async with (
            serving(app) as address,
            AsyncOpenAI(base_url=f"{address.url}/v1", api_key="none", max_retries=0) as client,
        ):
            items, calls = list(START), []
            for result in ("1 failed", "Success.", "[]"):
                last = await asked(client, items)
                items += [item.to_dict() for item in last.output]
                call = last.output[-1]
                calls.append(call)
                kind = f"{call.type}_output"
                items.append({"type": kind, "call_id": call.call_id, "output": result})
            last = await asked(client, items)
            assert last.output_text == "Fixed `src/main.rs:42`."
            assert [call.type for call in calls] == [
                *("function_call", "custom_tool_call", "function_call")
            ]
            assert calls[1].input == PATCH
            assert (calls[2].namespace, calls[2].name) == ("mcp__notes", "search")
            prompts = [list(request.prompt_ids) for request in engine.requests]
            for earlier, later in itertools.pairwise(prompts):
                assert later[: len(earlier)] == earlier

    asyncio.run(story())
