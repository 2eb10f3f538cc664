"""Steering over the protocol: what a client sees of it, and what the engine is asked.

Budget: 6 s on one core.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.served import Served, script, served
from tests.support.steering import GUIDES
from trt_responses.engine import CONTINUATION_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from tests.support.scripted.engine import Script
    from trt_responses.engine import GenerateOptions

Json = dict[str, Any]

FLAG = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
FORMAT = {
    "format": {
        "type": "json_schema",
        "name": "verdict",
        "description": "Yes or no.",
        "schema": FLAG,
        "strict": True,
    }
}
GET = {"type": "function", "name": "get", "parameters": FLAG}
GOT = {"type": "function", "name": "get_it", "parameters": FLAG}
THOUGHT, HEADER = "Hm.<|end|>", "commentary to=functions.get_it <|endoftext|>"
JSON = '{"ok":true}<|endoftext|>'


def run(
    story: Callable[[Served], Coroutine[None, None, None]], *written: Any, **parts: Any
) -> None:
    async def told() -> None:
        async with served(*written, guides=GUIDES, **parts) as s:
            await story(s)

    asyncio.run(asyncio.wait_for(told(), 300))


def bare(told: Json) -> Json:
    """Without what differs between two responses to the same request."""
    told = {key: value for key, value in told.items() if key not in ("id", "created_at")}
    told["completed_at"] = told["completed_at"] is not None
    output = [
        {key: value for key, value in item.items() if key not in ("id", "call_id")}
        for item in told["output"]
    ]
    return told | {"output": output}


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ({"text": FORMAT}, (THOUGHT, JSON) * 2),
        ({"tools": [GET, GOT], "tool_choice": "required"}, (THOUGHT, HEADER, JSON) * 2),
    ],
)
def test_stream_and_plain_give_the_same_snapshot(asked: Json, written: tuple[str, ...]) -> None:
    async def story(s: Served) -> None:
        plain = await s.client.create(**asked)
        flowing = await s.client.create(**asked, stream=True)
        last = flowing.events[-1]["response"]
        assert last["status"] == "completed"
        assert bare(last) == bare(plain.json())

    run(story, *written)


def test_a_format_and_a_choice_are_told_back_as_they_were_asked() -> None:
    choice = {"type": "function", "name": "get"}

    async def story(s: Served) -> None:
        told = (await s.client.create(text=FORMAT, tools=[GET], tool_choice=choice)).json()
        assert told["text"]["format"] == FORMAT["format"]
        assert told["tool_choice"] == choice

    run(story, THOUGHT, JSON)


def test_the_model_is_shown_the_schema_and_every_tool() -> None:
    async def story(s: Served) -> None:
        await s.client.create(text=FORMAT, tools=[GET, GOT], tool_choice="none")
        prompt = s.prompt_text(0)
        assert "# Response Formats\n\n## verdict\n\n// Yes or no.\n" in prompt
        assert "type get = " in prompt
        assert "type get_it = " in prompt

    run(story, THOUGHT, JSON)


def test_a_later_turn_extends_the_ids_of_a_steered_one() -> None:
    """What the segments made together is what the next prompt holds, so that it is cached."""

    async def story(s: Served) -> None:
        asked: Json = {"tools": [GET, GOT]}
        first = (await s.client.create(**asked, tool_choice="required")).json()
        call = first["output"][-1]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "done"}
        await s.client.create(
            **asked, tool_choice="none", input=[result], previous_response_id=first["id"]
        )
        third, fourth = s.prompt(2), s.prompt(3)
        assert fourth[: len(third)] == third
        assert '<|message|>{"ok":true}<|call|><|start|>functions.get_it' in s.prompt_text(3)

    run(story, THOUGHT, HEADER, JSON, THOUGHT, "Done.<|return|>")


def test_a_later_segment_is_not_left_waiting_behind_new_requests() -> None:
    async def story(s: Served) -> None:
        first = s.client.ask(tools=[GET, GOT], tool_choice="required")
        while not s.engine.requests:
            await s.clock.step()
        others = [s.client.ask(input=f"other {n}") for n in range(3)]
        while not first.ended:
            await s.clock.step()
        asked = [(r.options.priority, r.steps_made) for r in s.engine.requests]
        assert sum(steps > 0 for priority, steps in asked if priority < CONTINUATION_PRIORITY) == 1
        assert sum(priority == CONTINUATION_PRIORITY for priority, _ in asked) == 2
        while not all(other.ended for other in others):
            await s.clock.step()

    run(story, first_of_three, manual=True, max_batch=1)


def first_of_three(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    kind = options.guide.kind if options.guide else "free"
    return script({"free": THOUGHT, "regex": HEADER, "json_schema": JSON}[kind])


def test_a_run_that_has_begun_goes_on_to_its_end_while_the_server_drains() -> None:
    async def story(s: Served) -> None:
        call = s.client.ask(tools=[GET, GOT], tool_choice="required")
        while not s.engine.requests:
            await s.clock.step()
        s.drain()
        while not call.ended:
            await s.clock.step()
        assert call.json()["status"] == "completed"
        assert len(s.engine.requests) == 3

    run(story, THOUGHT, HEADER, JSON, manual=True)


def test_a_client_that_leaves_stops_whichever_segment_it_is() -> None:
    async def story(s: Served) -> None:
        call = s.client.ask(tools=[GET, GOT], tool_choice="required", stream=True)
        while len(s.engine.requests) < 2:
            await s.clock.step()
        call.hang_up()
        await s.clock.step(3)
        assert len(s.engine.requests) == 2
        assert s.last.state == "aborted"
        assert len(s.runs) == 0

    run(story, THOUGHT, HEADER, JSON, manual=True)


def test_a_departure_is_an_error_and_the_record_says_failed() -> None:
    async def story(s: Served) -> None:
        plain = await s.client.create(text=FORMAT)
        assert plain.status == 500
        assert plain.error["code"] == "output_departs_from_format"
        assert plain.error["param"] == "$.ok"
        assert "departed from the format of the answer at '$.ok': '5' may" in plain.error["message"]
        flowing = await s.client.create(text=FORMAT, stream=True)
        told = flowing.events[-2]
        assert (told["code"], told["param"]) == (plain.error["code"], plain.error["param"])
        assert told["message"] == plain.error["message"]
        assert [event["type"] for event in flowing.events[-2:]] == ["error", "response.failed"]
        last = flowing.events[-1]["response"]
        assert last["output"][-1]["content"][0]["text"] == '{"ok":'
        stored = await s.client.get(f"/v1/responses/{last['id']}")
        assert stored.json()["status"] == "failed"
        again = await s.client.create(previous_response_id=last["id"])
        assert again.error["code"] == "previous_response_not_continuable"

    run(story, THOUGHT, '{"ok":5}', THOUGHT, '{"ok":5}')


@pytest.mark.parametrize(
    ("param", "asked"),
    [
        ("tool_choice", {"tools": [GET, GOT], "tool_choice": "required"}),
        ("text.format", {"text": FORMAT}),
        ("tools[1].strict", {"tools": [GET, GOT | {"strict": True}]}),
    ],
)
def test_an_engine_without_guides_refuses_before_any_token(param: str, asked: Json) -> None:
    async def story() -> None:
        async with served() as s:
            call = await s.client.create(**asked)
            assert (call.status, call.error["param"]) == (400, param)
            assert not s.engine.requests

    asyncio.run(story())


@pytest.mark.parametrize(
    ("param", "asked"),
    [
        (
            "text.format.schema.properties.a.anyOf[0].allOf",
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "x",
                        "schema": FLAG | {"properties": {"a": {"anyOf": [{"allOf": []}]}}},
                    }
                }
            },
        ),
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice.name", {"tool_choice": {"type": "function", "name": "x"}, "tools": [GET]}),
        ("tool_choice.more", {"tool_choice": {"type": "function", "name": "x", "more": {}}}),
        ("text.format.schema", {"text": {"format": {"type": "json_schema", "name": "x"}}}),
        ("text.format", {"text": {"format": {"type": "grammar"}}}),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused_by_name(param: str, asked: Json) -> None:
    async def story(s: Served) -> None:
        call = await s.client.create(**asked)
        assert (call.status, call.error["param"]) == (400, param)
        assert not s.engine.requests

    run(story, script(JSON))


def test_a_schema_that_takes_too_long_is_refused_before_any_token() -> None:
    async def story(s: Served) -> None:
        call = await s.client.create(text=FORMAT)
        assert (call.status, call.error["param"]) == (400, "text.format.schema")
        assert call.error["code"] == "invalid_json_schema"
        assert "takes too long to compile" in call.error["message"]
        assert not s.engine.requests
        count = await s.client.send("POST", "/v1/responses/input_tokens", counted)
        assert count.status == 400

    counted = orjson.dumps({"model": "demo", "input": "Hi", "text": FORMAT})
    run(story, script(JSON), schema_s=1e-12)
